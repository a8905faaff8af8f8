/*
 * The events of a line of an XSpace, as event_decoder.py finds and decodes them without a compiler.
 *
 * Field numbers are those of XLine and XEvent in tsl/profiler/protobuf/xplane.proto (openxla/xla).
 * Offsets are checked against the end of the line, the event or the message. 16 readable bytes lie behind the
 * message (PADDING in protobuf.py), and a varint takes at most ten, so none is read behind them.
 * What is not as most serialisers write it is left to Python, which also makes all errors.
 */
#include <stdint.h>

#ifdef _WIN32
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC
#endif

/* The CRC-32 of this file, given when it is compiled: the caller uses no code of another version of it. */
PUBLIC const uint32_t tfperf_source = TFPERF_SOURCE;

enum { EVENT_TAG = 0x22, STAT_TAG = 0x22, N_NUMBERS = 3, LONGEST_VARINT = 10 };

/* Read the varint at an offset; return the offset behind it, or -1 if it does not end. */
static int64_t read_varint(const uint8_t *bytes, int64_t at, uint64_t *value) {
    *value = 0;
    for (int place = 0; place < LONGEST_VARINT; place++) {
        const uint64_t byte = bytes[at + place];
        *value |= (byte & 0x7F) << (7 * place);
        if (byte < 0x80)
            return at + place + 1;
    }
    return -1;
}

/*
 * Return the offset behind the sized field whose tag of one byte is at an offset, or -1 if that is behind `end`.
 * `begin` becomes the offset of its content, or -1.
 */
static int64_t behind_field(const uint8_t *bytes, int64_t tag, int64_t end, int64_t *begin) {
    uint64_t size;
    *begin = read_varint(bytes, tag + 1, &size);
    if (*begin < 0 || *begin > end || size > (uint64_t)(end - *begin))
        return -1;
    return *begin + (int64_t)size;
}

/*
 * Find the tags of at most `most` consecutive events from `at` on; `tags` may be NULL to count them.
 * `behind` becomes the offset behind the last one. There the bytes are of another field, or of an event that is damaged.
 */
PUBLIC int64_t tfperf_find_events(const uint8_t *bytes, int64_t at, int64_t end, int64_t most, int64_t *tags, int64_t *behind) {
    int64_t n = 0, begin;
    while (n < most && at < end && bytes[at] == EVENT_TAG) {
        const int64_t next = behind_field(bytes, at, end, &begin);
        if (next < 0)
            break;
        if (tags)
            tags[n] = at;
        at = next;
        n++;
    }
    *behind = at;
    return n;
}

/*
 * Decode the events at `tags` from `row` on: metadata_id = 1, offset_ps = 2, duration_ps = 3, then stats = 4.
 * Return the first row that is of another form, or `n_rows`. The begin and the end of its content are written.
 */
PUBLIC int64_t tfperf_decode_events(const uint8_t *bytes, int64_t size, const int64_t *tags, int64_t row, int64_t n_rows,
                                    int64_t *metadata_id, int64_t *offset_ps, int64_t *duration_ps,
                                    int64_t *stats_begin, int64_t *stats_end) {
    int64_t *const numbers[N_NUMBERS] = {metadata_id, offset_ps, duration_ps};
    for (; row < n_rows; row++) {
        int64_t at, content;
        const int64_t end = behind_field(bytes, tags[row], size, &at);
        stats_begin[row] = at;
        stats_end[row] = end;
        if (end < 0) /* a mapped file that has changed since its events were found */
            return row;
        for (int place = 0; place < N_NUMBERS; place++) {
            uint64_t value = 0;
            if (at < end && bytes[at] == (place + 1) << 3) {
                at = read_varint(bytes, at + 1, &value);
                if (at < 0 || at > end)
                    return row;
            }
            numbers[place][row] = (int64_t)value;
        }
        stats_begin[row] = at;
        while (at < end) {
            at = bytes[at] == STAT_TAG ? behind_field(bytes, at, end, &content) : -1;
            if (at < 0)
                return row;
        }
    }
    return n_rows;
}
