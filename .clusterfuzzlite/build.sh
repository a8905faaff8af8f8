#!/bin/bash -eu
# Builds each target as a program with its interpreter, as ClusterFuzzLite's page on Python says, and zips its corpus.
pip3 install .
for target in .clusterfuzzlite/*_fuzzer.py; do
    name=$(basename -s .py "$target")
    kind=${name%_fuzzer}
    pyinstaller --distpath "$OUT" --onefile --name "$name.pkg" --paths tests --paths .clusterfuzzlite \
        --collect-all pytest_tfperf --exclude-module tensorflow --exclude-module keras \
        --add-data "$PWD/tests/data/fuzz:data/fuzz" "$target"
    cat > "$OUT/$name" <<EOF
#!/bin/sh
# LLVMFuzzerTestOneInput: by this name the fuzzers are found.
here=\$(dirname "\$0")
LD_PRELOAD=\$here/sanitizer_with_fuzzer.so \\
ASAN_OPTIONS=\$ASAN_OPTIONS:symbolize=1:external_symbolizer_path=\$here/llvm-symbolizer:detect_leaks=0 \\
\$here/$name.pkg "\$@"
EOF
    chmod +x "$OUT/$name"
    zip -j -q "$OUT/${name}_seed_corpus.zip" "tests/data/fuzz/$kind/"*
done
