package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	block = 512 // of a tar
	// maxSegments is how many parts of a file are told; between more of them small holes are written as zeros. Readers take maps of less than 1 MiB.
	maxSegments = 16 << 10
)

// segment is a part of a file that is no hole.
type segment struct{ at, length int64 }

// segments are the parts of the first size bytes of a file that are no holes, fewer than most of them.
func segments(f *os.File, size int64, most int) (all []segment, err error) {
	gap := int64(0) // holes that are no longer are written
	for at := int64(0); at < size; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && from >= size {
			break
		}
		var to int64
		if err == nil {
			to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		}
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			return []segment{{0, size}}, nil // this file system knows no holes
		}
		if err != nil {
			return nil, err
		}
		to = min(to, size)
		if last := len(all) - 1; last >= 0 && from-(all[last].at+all[last].length) <= gap {
			all[last].length = to - all[last].at
		} else {
			all = append(all, segment{from, to - from})
		}
		for at = to; len(all) >= most; all = joined(all, gap) {
			gap = max(2*gap, 4<<10)
		}
	}
	return all, nil
}

// joined are segments without the holes that are no longer than gap.
func joined(all []segment, gap int64) []segment {
	out := all[:1]
	for _, s := range all[1:] {
		if last := &out[len(out)-1]; s.at-(last.at+last.length) <= gap {
			last.length = s.at + s.length - last.at
		} else {
			out = append(out, s)
		}
	}
	return out
}

// The records of a file with holes, as GNU tar has them (its manual, "PAX Format, Version 1.0"). archive/tar reads them, and refuses to write them: it is given others of the same
// length, whose names are changed afterwards.
const (
	gnuSparse   = "GNU.sparse."
	placeholder = "XNU.sparse."
)

// sparseEntry is all that is before the content of a file with holes, of which only the segments are written, and how many zeros follow it.
func sparseEntry(h *tar.Header, all []segment) (begin []byte, padding int64, err error) {
	var sparse bytes.Buffer
	length := int64(0)
	if last := len(all) - 1; last < 0 || all[last].at+all[last].length < h.Size {
		all = append(slices.Clone(all), segment{h.Size, 0}) // a hole at the end is told by what is behind it
	}
	fmt.Fprintf(&sparse, "%d\n", len(all))
	for _, s := range all {
		fmt.Fprintf(&sparse, "%d\n%d\n", s.at, s.length)
		length += s.length
	}
	sparse.Write(make([]byte, toBlock(int64(sparse.Len()))))
	is := *h
	is.Name = path.Join(path.Dir(h.Name), "GNUSparseFile.0", path.Base(h.Name))
	is.Size = int64(sparse.Len()) + length
	is.PAXRecords = maps.Clone(h.PAXRecords)
	if is.PAXRecords == nil {
		is.PAXRecords = map[string]string{}
	}
	for key, value := range map[string]string{"major": "1", "minor": "0", "name": h.Name, "realsize": strconv.FormatInt(h.Size, 10)} {
		is.PAXRecords[placeholder+key] = value
	}
	var buf bytes.Buffer
	if err := tar.NewWriter(&buf).WriteHeader(&is); err != nil {
		return nil, 0, err
	}
	if err := rename(buf.Bytes()); err != nil {
		return nil, 0, err
	}
	buf.Write(sparse.Bytes())
	return buf.Bytes(), toBlock(length), nil
}

// toBlock is how much is missing to a whole block.
func toBlock(n int64) int64 { return (block - n%block) % block }

// rename gives the records in an entry of PAX records, which is the first of raw, their names. Nothing sums up what they are.
func rename(raw []byte) error {
	const typeAt, sizeAt, sizeEnd = 156, 124, 136
	if len(raw) < block || raw[typeAt] != tar.TypeXHeader {
		return errors.New("a header without PAX records")
	}
	size, err := strconv.ParseInt(strings.Trim(string(raw[sizeAt:sizeEnd]), " \x00"), 8, 64)
	if err != nil || size > int64(len(raw)-block) {
		return fmt.Errorf("a header of PAX records of %d bytes: %w", size, err)
	}
	for records := raw[block : block+size]; len(records) > 0; {
		length, rest, ok := bytes.Cut(records, []byte(" "))
		n, err := strconv.Atoi(string(length))
		if !ok || err != nil || n <= len(length) || n > len(records) {
			return errors.New("a PAX record without a length")
		}
		if bytes.HasPrefix(rest, []byte(placeholder)) {
			copy(rest, gnuSparse)
		}
		records = records[n:]
	}
	return nil
}
