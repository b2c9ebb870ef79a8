package recipe

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Where the fields of a header's block are.
const (
	sizeAt = 124
	typeAt = 156
	// magic and version, and where the POSIX format has the begin of a long name
	magicAt  = 257
	prefixAt = 345

	// The old GNU format of sparse files.
	gnuMapAt      = 386
	gnuExtendedAt = 482
	gnuEntry      = 24
	gnuInHeader   = 4
	gnuInBlock    = 21
)

// plainName is the name in the headers of an entry, if they are one block of a regular file in the POSIX or the GNU format.
func plainName(head []byte) (string, bool) {
	if len(head) != blockSize || head[typeAt] != '0' {
		return "", false
	}
	field := func(at, n int) []byte {
		f := head[at : at+n]
		if i := bytes.IndexByte(f, 0); i >= 0 {
			f = f[:i]
		}
		return f
	}
	name := field(0, 100)
	switch string(head[magicAt : magicAt+8]) {
	case "ustar\x0000":
		if prefix := field(prefixAt, 155); len(prefix) > 0 {
			return string(prefix) + "/" + string(name), string(head[blockSize-4:]) != "tar\x00"
		}
	case "ustar  \x00":
		if head[prefixAt] != 0 { // times, or a writer that did it wrong
			return "", false
		}
	default:
		return "", false
	}
	return string(name), true
}

// rawSize is the size that a header's block tells: octal digits, or a number of base 256.
func rawSize(block []byte) (int64, error) { return number(block[sizeAt : sizeAt+12]) }

func number(field []byte) (int64, error) {
	if field[0]&0x80 != 0 {
		var n uint64
		for i, b := range field {
			if i == 0 {
				b &= 0x7f
			}
			if n>>55 != 0 {
				return 0, errors.New("the size of an entry is out of range")
			}
			n = n<<8 | uint64(b)
		}
		return int64(n), nil // below 2^63
	}
	if n, ok := octal(field); ok {
		return n, nil
	}
	s := strings.Trim(string(field), " \x00")
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 63)
	if err != nil {
		return 0, fmt.Errorf("a number of a header is %q", s)
	}
	return int64(n), nil // of 63 bits
}

// octal reads what most writers write: digits from the first to the last but one byte.
func octal(field []byte) (n int64, ok bool) {
	last := len(field) - 1
	for _, b := range field[:last] {
		if b < '0' || b > '7' {
			return 0, false
		}
		n = n<<3 | int64(b-'0')
	}
	return n, field[last] == 0 || field[last] == ' '
}

func decimal(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err // of 63 bits
}

// paxOf reads the PAX records of an entry, out of all of its headers. The keys that may appear more than once (the map of a sparse
// file in its oldest form) are put together by a comma.
func paxOf(head []byte) (map[string]string, error) {
	var all map[string]string
	for len(head) > blockSize {
		size, err := rawSize(head)
		if err != nil {
			return nil, err
		}
		end := blockSize + size
		padded := end + (blockSize-size%blockSize)%blockSize
		if padded > int64(len(head)) {
			return nil, errors.New("the headers of an entry are cut")
		}
		if head[typeAt] == 'x' {
			if all, err = records(head[blockSize:end]); err != nil {
				return nil, err
			}
		}
		head = head[padded:]
	}
	return all, nil
}

// records reads PAX records: "LENGTH KEY=VALUE\n".
func records(p []byte) (map[string]string, error) {
	all := map[string]string{}
	var oldMap []string
	for len(p) > 0 {
		sp := bytes.IndexByte(p, ' ')
		if sp < 0 {
			return nil, errors.New("a PAX record has no length")
		}
		n, err := strconv.ParseUint(string(p[:sp]), 10, 31)
		if err != nil || int(n) > len(p) || int(n) < sp+2 || p[n-1] != '\n' {
			return nil, errors.New("a PAX record has a wrong length")
		}
		key, value, ok := strings.Cut(string(p[sp+1:n-1]), "=")
		if !ok {
			return nil, errors.New("a PAX record has no value")
		}
		switch key {
		case "GNU.sparse.offset", "GNU.sparse.numbytes":
			oldMap = append(oldMap, value)
		default:
			all[key] = value
		}
		p = p[n:]
	}
	if len(oldMap) > 0 {
		all["GNU.sparse.map"] = strings.Join(oldMap, ",")
	}
	return all, nil
}

// span is a range of a file.
type span struct{ off, n int64 }

// sparse is the map of a sparse file, while it is read.
type sparse struct {
	ranges   []span
	physical int64 // bytes of the payload that are still to come: what the ranges hold
	done     bool
	// lines is set for PAX 1.0, whose map is decimal numbers in front of the payload.
	lines bool
	text  []byte
	have  uint64 // lines in text
	need  uint64 // lines of the whole map; 0 while the first is not complete
}

// gnuSparse begins with the header of the old GNU format.
func gnuSparse(block []byte, size int64) (sparse, error) {
	s := sparse{physical: size}
	return s, s.gnu(block[gnuMapAt:], gnuInHeader, block[gnuExtendedAt])
}

func (s *sparse) gnu(entries []byte, n int, more byte) error {
	for i := range n {
		e := entries[i*gnuEntry:]
		if e[0] == 0 {
			break
		}
		off, err := number(e[:12])
		if err != nil {
			return err
		}
		length, err := number(e[12:24])
		if err != nil {
			return err
		}
		s.ranges = append(s.ranges, span{off, length})
	}
	s.done = more == 0
	return nil
}

// paxSparse says whether PAX records tell of a sparse file.
func paxSparse(records map[string]string, size int64) (sparse, bool, error) {
	s := sparse{physical: size}
	switch major, minor := records["GNU.sparse.major"], records["GNU.sparse.minor"]; {
	case major == "1" && minor == "0":
		s.lines = true
		return s, true, nil
	case major != "" || minor != "":
		if major == "0" && (minor == "0" || minor == "1") {
			break
		}
		return s, false, nil // archive/tar takes it for an ordinary file
	case records["GNU.sparse.map"] == "":
		return s, false, nil
	}
	s.done = true
	if records["GNU.sparse.map"] == "" {
		return s, true, nil
	}
	numbers := strings.Split(records["GNU.sparse.map"], ",")
	return s, true, s.add(numbers)
}

func (s *sparse) add(numbers []string) error {
	if len(numbers)%2 != 0 {
		return errors.New("the map of a sparse file has an odd number of numbers")
	}
	for i := 0; i < len(numbers); i += 2 {
		off, err := decimal(numbers[i])
		if err != nil {
			return fmt.Errorf("the map of a sparse file has the number %q", numbers[i])
		}
		n, err := decimal(numbers[i+1])
		if err != nil {
			return fmt.Errorf("the map of a sparse file has the number %q", numbers[i+1])
		}
		s.ranges = append(s.ranges, span{off, n})
	}
	return nil
}

// block takes the next block of the map.
func (s *sparse) block(block []byte) error {
	if !s.lines {
		return s.gnu(block, gnuInBlock, block[gnuInBlock*gnuEntry])
	}
	if s.physical -= blockSize; s.physical < 0 {
		return errors.New("the map of a sparse file is longer than the file")
	}
	s.text = append(s.text, block...)
	s.have += uint64(bytes.Count(block, []byte("\n")))
	if s.need == 0 && s.have > 0 {
		first, _, _ := bytes.Cut(s.text, []byte("\n"))
		n, err := strconv.ParseUint(string(first), 10, 20)
		if err != nil {
			return fmt.Errorf("the map of a sparse file has %q entries", first)
		}
		s.need = 1 + 2*n
	}
	if s.need == 0 || s.have < s.need {
		return nil
	}
	s.done = true
	return s.add(strings.Split(string(s.text), "\n")[1:s.need])
}

// check says whether the ranges are in order and hold what the payload has. What is empty is dropped.
func (s *sparse) check() error {
	var sum, last int64
	ranges := s.ranges[:0]
	for _, r := range s.ranges {
		if r.off < last || r.n > math.MaxInt64-r.off {
			return errors.New("the map of a sparse file is out of order")
		}
		last, sum = r.off+r.n, sum+r.n
		if r.n > 0 {
			ranges = append(ranges, r)
		}
	}
	if s.ranges = ranges; sum != s.physical {
		return fmt.Errorf("the map of a sparse file tells of %d bytes, its payload has %d", sum, s.physical)
	}
	return nil
}
