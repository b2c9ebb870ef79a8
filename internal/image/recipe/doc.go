// Package recipe writes a layer's tar again, byte for byte, from the directory that it was unpacked into.
//
// The digest of a layer's tar is part of its image's id, and a tar cannot be told from its files: the order of the entries, the
// format of the headers, paddings and times are choices of whoever wrote it. So while a layer is unpacked, a Recorder sees the bytes
// of its tar go by and writes down all of them but the contents of regular files, of which it keeps the name and the size: the
// recipe. It costs little time (payloads are only counted) and little space (headers compress well). With the recipe and the
// directory, Recipe.WriteTar makes the tar.
//
// It guarantees:
//   - what WriteTar has written without an error is the tar that was recorded: its digest is compared;
//   - recording never makes an unpack fail for what the tar is like: of a tar that cannot be written again the recipe says why.
//
// Whiteouts become something else in an overlay's directory (character devices, extended attributes) and nothing in the lowest
// layer. That is no loss: they are in the recipe. What is lost is a file that the same tar replaces later; the error of WriteTar
// names it.
//
// # The file
//
// A line with the format's version, and then a zstd stream of items. Each is a byte that says what it is, and numbers (uvarint) and
// strings (uvarint, bytes):
//
//	B string              these bytes
//	Z n                   n bytes of zero
//	F n name k (off n)*k  the n bytes of a regular file: all of it (k is 0), or k ranges of it (a sparse file)
//	U reason              the tar cannot be written again
//	E n digest            the end: the tar has n bytes and this digest
package recipe
