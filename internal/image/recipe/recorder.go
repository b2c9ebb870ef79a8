package recipe

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path"
	"strings"

	digest "github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

const (
	blockSize = 512
	// maxHeader bounds what stands before an entry's payload: PAX records, long names, the map of a sparse file. The reader of
	// archive/tar bounds each of them to 1 MiB.
	maxHeader = 4 << 20
	// maxStray bounds what is kept of a tar beside its headers: the payload of whiteouts (they have none), what follows the end.
	maxStray = 64 << 20
)

// what the next bytes are.
const (
	inHeader  = iota
	inExtra   // of the payload that belongs to a header: PAX records, a long name
	inMap     // a block of the map of a sparse file, between the header and the payload
	inFile    // the payload of a regular file
	inStray   // the payload of anything else
	inPadding // after a payload
	inTail    // after the end
)

// Recorder writes the recipe of a tar that goes through it. It is an io.Writer that never fails: what went wrong is told by Close.
// It is not safe for concurrent use.
type Recorder struct {
	out *encoder

	state int
	left  int64  // bytes of the state (of inHeader and inMap: to the end of the block)
	block []byte // what is known of a header's block
	head  []byte // the blocks of the entry that have been read, of all of its headers
	after int64  // the padding behind the payload
	zero  bool   // the last block was all zero
	parse sparse

	total   int64
	stray   int64
	refused string
}

// Create begins a recipe in a new file; a file that is there is replaced. Close or Abort must be called.
func Create(file string) (*Recorder, error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("recording a layer's headers: %w", err)
	}
	out, err := newEncoder(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("recording a layer's headers: %w", err)
	}
	return &Recorder{out: out, left: blockSize}, nil
}

// Write takes the next bytes of the tar.
func (r *Recorder) Write(p []byte) (int, error) {
	n := len(p)
	r.total += int64(n)
	for len(p) > 0 && r.refused == "" {
		k := r.step(p)
		p = p[k:]
	}
	return n, nil
}

// Close ends the recipe: digest is that of all the bytes that were written. The file is complete when Close returns without an
// error, but not yet synced.
func (r *Recorder) Close(digest digest.Digest) error {
	if r.refused == "" && r.state != inTail && (r.state != inHeader || len(r.block) > 0 || len(r.head) > 0) {
		r.refuse("it ends within an entry")
	}
	if r.refused != "" {
		r.out.refused(r.refused)
	}
	r.out.end(r.total, digest)
	if err := r.out.close(); err != nil {
		return fmt.Errorf("recording a layer's headers: %w", err)
	}
	return nil
}

// Abort gives up: what is in the file is no recipe.
func (r *Recorder) Abort() { _ = r.out.abort() }

// refuse says that the tar cannot be written again.
func (r *Recorder) refuse(format string, args ...any) {
	if r.refused == "" {
		r.refused = fmt.Sprintf(format, args...)
		r.block, r.head = nil, nil
	}
}

// step takes some of p, of what is expected now, and returns how much.
func (r *Recorder) step(p []byte) int {
	if r.state == inTail {
		r.keep(p)
		return len(p)
	}
	p = p[:min(int64(len(p)), r.left)]
	r.left -= int64(len(p))
	switch r.state {
	case inHeader, inMap:
		r.block = append(r.block, p...)
	case inExtra:
		r.head = append(r.head, p...)
		r.out.bytes(p)
	case inStray:
		r.keep(p)
	case inPadding:
		r.out.bytes(p)
	case inFile: // that is the point: it is only counted
	}
	if r.left == 0 {
		r.next()
	}
	return len(p)
}

// keep records bytes that are no header.
func (r *Recorder) keep(p []byte) {
	if len(bytes.Trim(p, "\x00")) == 0 {
		r.out.zeros(int64(len(p)))
		return
	}
	if r.stray += int64(len(p)); r.stray > maxStray {
		r.refuse("it has more than %d bytes that belong to no file", int64(maxStray))
		return
	}
	r.out.bytes(p)
}

// next decides what comes after what is complete now.
func (r *Recorder) next() {
	switch r.state {
	case inHeader:
		r.header()
	case inMap:
		r.out.bytes(r.block)
		r.head = append(r.head, r.block...)
		r.sparseBlock(r.block)
		r.block = r.block[:0]
	case inFile, inStray, inExtra:
		if pad := r.after; pad > 0 {
			r.after = 0
			if r.state == inExtra {
				r.left = pad // it is part of what archive/tar reads of the entry
				return
			}
			r.state, r.left = inPadding, pad
			return
		}
		r.expectHeader()
	case inPadding:
		r.expectHeader()
	}
}

func (r *Recorder) expectHeader() { r.state, r.left, r.block = inHeader, blockSize, r.block[:0] }

// header looks at a header's block.
func (r *Recorder) header() {
	block := r.block
	if block[0] == 0 && len(bytes.Trim(block, "\x00")) == 0 { // two of them are the end
		r.out.zeros(blockSize)
		r.block = r.block[:0]
		if r.zero {
			r.state = inTail
			return
		}
		r.zero, r.left = true, blockSize
		return
	}
	if r.zero {
		r.refuse("a block of zeros stands between its entries")
		return
	}
	r.out.bytes(block)
	r.head = append(r.head, block...)
	size, err := rawSize(block)
	if err != nil {
		r.refuse("%v", err)
		return
	}
	switch block[typeAt] {
	case tar.TypeXHeader, tar.TypeGNULongName, tar.TypeGNULongLink:
		if int64(len(r.head))+size > maxHeader {
			r.refuse("the headers of an entry take more than %d bytes", maxHeader)
			return
		}
		r.payload(inExtra, size)
	case tar.TypeXGlobalHeader: // an entry of its own
		r.head = r.head[:0]
		r.payload(inStray, size)
	case tar.TypeGNUSparse:
		if r.parse, err = gnuSparse(block, size); err != nil {
			r.refuse("%v", err)
			return
		}
		r.sparseNext()
	default:
		r.entry(size)
	}
}

// payload expects size bytes and their padding.
func (r *Recorder) payload(state int, size int64) {
	r.state, r.left, r.after, r.block = state, size, (blockSize-size%blockSize)%blockSize, r.block[:0]
	if size == 0 {
		r.expectHeader()
	}
}

// entry handles the entry whose headers are complete.
func (r *Recorder) entry(size int64) {
	if name, ok := plainName(r.head); ok { // most of them, and archive/tar takes its time
		r.head = r.head[:0]
		r.file(name, size, nil)
		return
	}
	records, err := paxOf(r.head)
	if err != nil {
		r.refuse("%v", err)
		return
	}
	if s, ok := records["size"]; ok {
		if size, err = decimal(s); err != nil {
			r.refuse("the size of an entry is %q", s)
			return
		}
	}
	parse, isSparse, err := paxSparse(records, size)
	if err != nil {
		r.refuse("%v", err)
		return
	}
	if isSparse {
		r.parse = parse
		r.sparseNext()
		return
	}
	h := r.described()
	if h == nil {
		return
	}
	switch h.Typeflag {
	case tar.TypeReg:
		r.file(h.Name, size, nil)
	case tar.TypeLink, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeDir, tar.TypeFifo: // whatever their size says
		r.expectHeader()
	default:
		r.payload(inStray, size)
	}
}

// sparseBlock takes a block of a sparse file's map.
func (r *Recorder) sparseBlock(block []byte) {
	if err := r.parse.block(block); err != nil {
		r.refuse("%v", err)
		return
	}
	if len(r.head) > maxHeader {
		r.refuse("the headers of an entry take more than %d bytes", maxHeader)
		return
	}
	r.sparseNext()
}

// sparseNext asks for more of the map of a sparse file, or for its payload.
func (r *Recorder) sparseNext() {
	if !r.parse.done {
		r.state, r.left, r.block = inMap, blockSize, r.block[:0]
		return
	}
	if err := r.parse.check(); err != nil {
		r.refuse("%v", err)
		return
	}
	if h := r.described(); h != nil {
		r.file(h.Name, r.parse.physical, r.parse.ranges)
	}
}

// described is what archive/tar makes of the entry's headers: the unpacking uses it too, so both mean the same file. It forgets them.
func (r *Recorder) described() *tar.Header {
	h, err := tar.NewReader(bytes.NewReader(r.head)).Next()
	r.head = r.head[:0]
	if err != nil {
		r.refuse("%v", err)
		return nil
	}
	return h
}

// file expects the payload of a regular file.
func (r *Recorder) file(name string, size int64, ranges []span) {
	name = path.Clean(name)
	if base := name[strings.LastIndexByte(name, '/')+1:]; strings.HasPrefix(base, ".wh.") || base == "." || base == "" {
		r.payload(inStray, size) // it is in no directory
		return
	}
	if size > 0 {
		r.out.payload(size, name, ranges)
	}
	r.payload(inFile, size)
}
