"""A profiler server that answers with a small message that gzip makes large; it prints its port."""

import socket
import struct
import sys
import zlib

DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
ACK = END_STREAM = 1
END_HEADERS = 4
STATUS_200 = b"\x88"  # of the static table of HPACK (RFC 7541)
PREFACE, HEAD = 24, 9  # bytes


def main():
    content = bomb(int(sys.argv[1]))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            connection, _ = listener.accept()
            with connection:
                try:
                    answer(connection, content)
                except OSError:
                    continue  # the client has gone


def bomb(size):
    """Zeros as a compressed message of gRPC: a flag, the length, and the bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()
    return b"\x01" + struct.pack(">I", len(packed)) + packed


def answer(connection, content):
    """Answer each request of a client in frames of HTTP/2 (RFC 9113), whatever it accepts."""
    with connection.makefile("rb") as received:
        received.read(PREFACE)
        connection.sendall(frame(SETTINGS, 0, 0, b""))
        while len(head := received.read(HEAD)) == HEAD:
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            body = received.read(int.from_bytes(head[:3], "big"))
            if kind in (SETTINGS, PING) and not flags & ACK:
                connection.sendall(frame(kind, ACK, 0, body if kind == PING else b""))
            elif kind == DATA and flags & END_STREAM:
                headers = {b"content-type": b"application/grpc", b"grpc-encoding": b"gzip"}
                first = STATUS_200 + b"".join(map(literal, headers.items()))
                connection.sendall(frame(HEADERS, END_HEADERS, stream, first))
                for begin in range(0, len(content), 16384):
                    connection.sendall(frame(DATA, 0, stream, content[begin : begin + 16384]))
                last = literal((b"grpc-status", b"0"))
                connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, stream, last))


def frame(kind, flags, stream, body):
    head = struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
    return head + body


def literal(header):
    """A header field that is not indexed (RFC 7541, 6.2.2)."""
    name, value = header
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


if __name__ == "__main__":
    main()
