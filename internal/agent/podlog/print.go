package podlog

import (
	"errors"
	"io"
)

// errFull says that the limit of bytes is reached.
var errFull = errors.New("limit reached")

// printer writes records as lines.
type printer struct {
	w    io.Writer
	opts Options
	// left is how many bytes may still be written; negative: any number.
	left int64
	// inLine says, by stream, that the line that is being written is not at its end; skipped that it is left out.
	inLine, skipped map[string]bool
}

// print writes one line of the log file.
func (p *printer) print(line []byte) error {
	r := parse(line)
	if p.opts.Stream != "" && r.stream != p.opts.Stream {
		return nil
	}
	if p.inLine == nil {
		p.inLine, p.skipped = map[string]bool{}, map[string]bool{}
	}
	begins := !p.inLine[r.stream]
	if begins {
		p.skipped[r.stream] = !p.opts.Since.IsZero() && r.time.Before(p.opts.Since)
	}
	p.inLine[r.stream] = r.partial
	if p.skipped[r.stream] {
		return nil
	}
	var out []byte
	if begins && p.opts.Timestamps && len(r.stamp) > 0 {
		out = append(append(out, r.stamp...), ' ')
	}
	out = append(out, r.content...)
	if !r.partial {
		out = append(out, '\n')
	}
	return p.write(out)
}

func (p *printer) write(out []byte) error {
	if p.left >= 0 && int64(len(out)) > p.left {
		out = out[:p.left]
	}
	if len(out) > 0 {
		if _, err := p.w.Write(out); err != nil {
			return err
		}
	}
	if p.left >= 0 {
		if p.left -= int64(len(out)); p.left == 0 {
			return errors.Join(errFull, p.flush())
		}
	}
	return nil
}

// flush hands on what the writer has gathered, where it gathers.
func (p *printer) flush() error {
	if f, ok := p.w.(interface{ FlushError() error }); ok {
		return f.FlushError()
	}
	return nil
}
