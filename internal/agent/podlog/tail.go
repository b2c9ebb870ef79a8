package podlog

import (
	"bytes"
	"io"
	"strings"
)

const block = 64 << 10

// tailOffset is where the last n lines that the container wrote begin. A line at the end that is not complete counts.
//
// It reads backwards, a block at a time: a record belongs to the same line as the one before it when that one is
// partial. Where both streams are cut at once, a line may begin a record too early.
func tailOffset(f io.ReaderAt, size int64, n int64) (int64, error) {
	if n <= 0 {
		return size, nil
	}
	end := size
	begun := false // the record that ends at end has been counted as the last part of a line
	var lines int64
	for end > 0 {
		start, err := lineStart(f, end)
		if err != nil {
			return 0, err
		}
		partial, err := isPartial(f, start, end)
		if err != nil {
			return 0, err
		}
		if !partial || !begun {
			if lines == n {
				return end, nil
			}
			lines++
			begun = true
		}
		end = start
	}
	return 0, nil
}

// lineStart is where the line begins that ends before end.
func lineStart(f io.ReaderAt, end int64) (int64, error) {
	buf := make([]byte, 0, block)
	// The byte before end is the line's own end, or the file's last byte.
	for at := end - 1; at > 0; {
		from := max(at-block, 0)
		buf = buf[:at-from]
		if _, err := f.ReadAt(buf, from); err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		at = from
	}
	return 0, nil
}

// maxHead is more than a record's time, stream and tag take.
const maxHead = 128

func isPartial(f io.ReaderAt, start, end int64) (bool, error) {
	head := make([]byte, min(end-start, maxHead))
	if _, err := f.ReadAt(head, start); err != nil && err != io.EOF {
		return false, err
	}
	return parse(head).partial, nil
}

// Tail returns the end of a log: at most so many lines and bytes, of both streams.
func Tail(path string, lines, limit int64) (string, error) {
	f, err := open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	offset, err := tailOffset(f, info.Size(), lines)
	if err != nil {
		return "", err
	}
	// Reading is bounded: what is far more than the limit is not kept anyway.
	const perRecord = 4
	if far := info.Size() - limit*perRecord - block; offset < far {
		offset = far
	}
	data, err := io.ReadAll(io.NewSectionReader(f, offset, info.Size()-offset))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range bytes.Lines(data) {
		r := parse(line)
		b.Write(r.content)
		if !r.partial {
			b.WriteByte('\n')
		}
	}
	text := b.String()
	if over := int64(len(text)) - limit; over > 0 {
		text = text[over:]
	}
	return text, nil
}
