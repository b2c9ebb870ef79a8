package fsck

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// The pages of a bbolt file, format version 2. bbolt reads them through a mapping of the file and trusts them: what leads out of the
// mapping, or in a circle, ends the process or never ends. So each page is looked at here before bbolt sees it, with its length
// in mind; what passes can be read.
//
//	page     id u64, flags u16, count u16, overflow u32 (pages that follow and belong to it), then count elements
//	branch   pos u32 (from the element's begin), ksize u32, child u64
//	leaf     flags u32 (1: a bucket), pos u32, ksize u32, vsize u32
//	bucket   root u64 (0: a page follows in the value itself), sequence u64
//	freelist count ids of pages; a count of 0xffff: the first u64 is the count
//	meta     magic u32, version u32, page size u32, flags u32, root u64, sequence u64, freelist u64, end u64, txid u64, checksum u64
const (
	pageHeader   = 16
	pageElement  = 16
	bucketHeader = 16
	metaSize     = 64

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFreelist  = ^uint64(0)
)

// maxDepth is more than any database of ours has pages above pages.
const maxDepth = 64

var le = binary.LittleEndian

type pages struct {
	file []byte
	size uint64 // of a page
	end  uint64 // the first page that was never used
	used map[uint64]bool
}

// checkPages proves that the file has the form of a database: every page is of one bucket or free, keys are in order.
func checkPages(file []byte) error {
	m, err := newestMeta(file)
	if err != nil {
		return err
	}
	p := &pages{file: file, size: uint64(le.Uint32(m[8:])), end: le.Uint64(m[40:]), used: map[uint64]bool{0: true, 1: true}}
	if p.end < 2 || p.end > uint64(len(file))/p.size {
		return fmt.Errorf("it has %d bytes, its header tells of %d pages of %d", len(file), p.end, p.size)
	}
	if err := p.tree(le.Uint64(m[16:]), nil, nil, 0); err != nil {
		return err
	}
	return p.free(le.Uint64(m[32:]))
}

// newestMeta finds the meta page of the last transaction, as bbolt does.
func newestMeta(file []byte) ([]byte, error) {
	var best []byte
	for _, size := range []int{4096, 1024, 2048, 8192, 16384, 32768, 65536} {
		for at := pageHeader; at <= size+pageHeader; at += size {
			if len(file) < at+metaSize {
				continue
			}
			m := file[at : at+metaSize]
			h := fnv.New64a()
			h.Write(m[:metaSize-8])
			if le.Uint32(m) != metaMagic || le.Uint32(m[4:]) != metaVersion || int(le.Uint32(m[8:])) != size || le.Uint64(m[56:]) != h.Sum64() {
				continue
			}
			if best == nil || le.Uint64(m[48:]) > le.Uint64(best[48:]) {
				best = m
			}
		}
	}
	if best == nil {
		return nil, fmt.Errorf("it has no header of a database")
	}
	return best, nil
}

// page returns the bytes of a page with what belongs to it, and takes down that it is used.
func (p *pages) page(id uint64) ([]byte, error) {
	if id < 2 || id >= p.end {
		return nil, fmt.Errorf("page %d is not one of its %d pages", id, p.end)
	}
	raw := p.file[id*p.size:]
	more := uint64(le.Uint32(raw[12:]))
	if more >= p.end-id {
		return nil, fmt.Errorf("page %d goes on for %d pages, beyond the last one, %d", id, more, p.end)
	}
	if le.Uint64(raw) != id {
		return nil, fmt.Errorf("page %d says that it is page %d", id, le.Uint64(raw))
	}
	for n := id; n <= id+more; n++ {
		if p.used[n] {
			return nil, fmt.Errorf("page %d is used twice", n)
		}
		p.used[n] = true
	}
	return raw[:(more+1)*p.size], nil
}

// tree looks at a page of keys and those below it. All keys are to be at least from, and less than to (nil: any).
func (p *pages) tree(id uint64, from, to []byte, depth int) error {
	raw, err := p.page(id)
	if err != nil {
		return err
	}
	if err := p.elements(raw, from, to, depth); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// element is one key of a page, with what it leads to.
type element struct {
	key, value []byte
	child      uint64
	bucket     bool
}

func (p *pages) elements(raw []byte, from, to []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("it is more than %d pages deep", maxDepth)
	}
	if len(raw) < pageHeader {
		return fmt.Errorf("it has %d bytes", len(raw))
	}
	kind, count := le.Uint16(raw[8:]), int(le.Uint16(raw[10:]))
	if kind != branchPage && kind != leafPage {
		return fmt.Errorf("it has the flags %#x", kind)
	}
	if pageHeader+count*pageElement > len(raw) || kind == branchPage && count == 0 {
		return fmt.Errorf("it cannot have %d keys", count)
	}
	all := make([]element, count)
	for i := range all {
		var err error
		if all[i], err = readElement(raw, pageHeader+i*pageElement, kind); err != nil {
			return fmt.Errorf("key %d: %w", i, err)
		}
		key := all[i].key
		if i > 0 && bytes.Compare(key, all[i-1].key) <= 0 || i == 0 && from != nil && bytes.Compare(key, from) < 0 || to != nil && bytes.Compare(key, to) >= 0 {
			return fmt.Errorf("key %d is not in order", i)
		}
	}
	for i, e := range all {
		var err error
		switch {
		case kind == branchPage:
			next := to
			if i+1 < count {
				next = all[i+1].key
			}
			err = p.tree(e.child, e.key, next, depth+1)
		case e.bucket:
			err = p.bucket(e.value, depth+1)
		}
		if err != nil {
			return fmt.Errorf("key %d: %w", i, err)
		}
	}
	return nil
}

func readElement(raw []byte, at int, kind uint16) (e element, err error) {
	head := raw[at:]
	pos, ksize, vsize := uint64(le.Uint32(head)), uint64(le.Uint32(head[4:])), uint64(0)
	if kind == leafPage {
		pos, ksize, vsize = uint64(le.Uint32(head[4:])), uint64(le.Uint32(head[8:])), uint64(le.Uint32(head[12:]))
		e.bucket = le.Uint32(head)&1 != 0
	} else {
		e.child = le.Uint64(head[8:])
	}
	begin := uint64(at) + pos
	if begin+ksize+vsize > uint64(len(raw)) {
		return e, fmt.Errorf("it is not in its page")
	}
	e.key, e.value = raw[begin:begin+ksize], raw[begin+ksize:begin+ksize+vsize]
	return e, nil
}

func (p *pages) bucket(value []byte, depth int) error {
	if len(value) < bucketHeader {
		return fmt.Errorf("a bucket has %d bytes", len(value))
	}
	if root := le.Uint64(value); root != 0 {
		return p.tree(root, nil, nil, depth)
	}
	inline := value[bucketHeader:]
	if len(inline) >= pageHeader && le.Uint16(inline[8:]) != leafPage {
		return fmt.Errorf("a bucket within its page has the flags %#x", le.Uint16(inline[8:]))
	}
	return p.elements(inline, nil, nil, depth)
}

// free compares the list of free pages with those that are used: each is in one of both. A database without a list makes it when
// it is opened.
func (p *pages) free(list uint64) error {
	if list == noFreelist {
		return nil
	}
	raw, err := p.page(list)
	if err != nil {
		return fmt.Errorf("the list of free pages: %w", err)
	}
	ids, count := raw[pageHeader:], uint64(le.Uint16(raw[10:]))
	if count == 0xffff {
		count, ids = le.Uint64(ids), ids[8:]
	}
	if le.Uint16(raw[8:]) != freelistPage || count > uint64(len(ids))/8 {
		return fmt.Errorf("the list of free pages, page %d, has the flags %#x and %d entries", list, le.Uint16(raw[8:]), count)
	}
	for i := range count {
		id := le.Uint64(ids[i*8:])
		if id >= p.end || p.used[id] {
			return fmt.Errorf("page %d is in the list of free pages, and used or not there", id)
		}
		p.used[id] = true
	}
	for id := range p.end {
		if !p.used[id] {
			return fmt.Errorf("page %d is neither used nor free", id)
		}
	}
	return nil
}
