package hostnames

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/atomicfile"
)

// A resolv.conf with the names of a cluster begins with a block of the node's own:
//
//	# monopod monopod0: begin
//	# Names of cluster.local; all others are asked of the servers below. "monopod dns disable" takes this away.
//	nameserver 10.43.0.10
//	# monopod monopod0: end
//
// The C library asks the first server that it can reach, so while the node is stopped, and nobody listens there, the next one is asked at once.

func (h *Host) begin() string { return "# monopod " + h.cfg.Owner + ": begin" }
func (h *Host) end() string   { return "# monopod " + h.cfg.Owner + ": end" }

// comment begins the second line of the block.
const comment = "# Names of "

// withBlock is a resolv.conf with the block, once, at its begin. It is pure.
func (h *Host) withBlock(raw []byte) []byte {
	block := fmt.Sprintf("%s\n"+comment+"%s; all others are asked of the servers below. \"monopod dns disable\" takes this away.\nnameserver %s\n%s\n",
		h.begin(), h.cfg.Domain, h.cfg.Servers[0], h.end())
	return append([]byte(block), h.withoutBlock(raw)...)
}

// withoutBlock is a resolv.conf without the block. It is pure.
func (h *Host) withoutBlock(raw []byte) []byte {
	lines := slices.Collect(bytes.Lines(raw))
	is := func(mark string) func([]byte) bool {
		return func(line []byte) bool { return string(bytes.TrimSpace(line)) == mark }
	}
	for {
		begin := slices.IndexFunc(lines, is(h.begin()))
		if begin < 0 {
			break
		}
		length := slices.IndexFunc(lines[begin:], is(h.end())) + 1
		if length == 0 { // somebody has cut its end off: what is surely its own goes
			server := "nameserver " + h.cfg.Servers[0].String()
			for length = 1; begin+length < len(lines) && (bytes.HasPrefix(lines[begin+length], []byte(comment)) || is(server)(lines[begin+length])); {
				length++
			}
		}
		lines = slices.Delete(lines, begin, begin+length)
	}
	return bytes.Join(lines, nil)
}

// change rewrites the resolv.conf, if that changes it. Links are followed: the file that they lead to is the one that is read.
func (h *Host) change(to func([]byte) []byte) (changed bool, err error) {
	path, err := filepath.EvalSymlinks(h.cfg.ResolvConf)
	if errors.Is(err, os.ErrNotExist) {
		path, err = h.cfg.ResolvConf, nil
		if target, e := os.Readlink(path); e == nil { // to a file that is not there yet
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(path), target)
			}
			path = target
		}
	}
	if err != nil {
		return false, err
	}
	mode := os.FileMode(0o644)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		raw = nil
	case err != nil:
		return false, err
	default:
		st, err := os.Stat(path)
		if err != nil {
			return false, err
		}
		mode = st.Mode().Perm()
	}
	now := to(raw)
	if bytes.Equal(raw, now) {
		return false, nil
	}
	err = atomicfile.Write(path, now, mode)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EXDEV) {
		// It is mounted there by itself, as in containers, and cannot be replaced.
		err = os.WriteFile(path, now, mode)
	}
	return err == nil, err
}
