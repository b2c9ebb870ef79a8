package crilog

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// hostile is a pod's log directory that a container has mounted and may change, and a file outside of it that the container must not
// reach through a writer of its log.
type hostile struct {
	testing.TB
	top, victim string
}

const secret = "not a log\n"

func newHostile(t *testing.T) *hostile {
	h := &hostile{TB: t, top: t.TempDir()}
	h.victim = filepath.Join(h.top, "victim")
	h.check(os.MkdirAll(filepath.Join(h.top, "pods/pod/c"), 0o755))
	h.check(os.WriteFile(h.victim, []byte(secret), 0o644))
	return h
}

func (h *hostile) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *hostile) in(name string) string { return filepath.Join(h.top, "pods/pod", name) }

// untouched fails the test if anything outside of the log directory was changed or made.
func (h *hostile) untouched() {
	h.Helper()
	if raw, err := os.ReadFile(h.victim); err != nil || string(raw) != secret {
		h.Errorf("the file outside was changed: %.100q, %v", raw, err)
	}
	entries, err := os.ReadDir(h.top)
	h.check(err)
	for _, e := range entries {
		if e.Name() != "pods" && e.Name() != "victim" && e.Name() != "outside" {
			h.Errorf("%s was made outside", e.Name())
		}
	}
}

// paths are those of one log: as the runtime gives it, and as one of before gave it.
func (h *hostile) paths() map[string]string {
	return map[string]string{"resolved": h.in("") + "/./c/0.log", "of an older runtime": h.in("c/0.log")}
}

// TestHostileFileOfLog: what is in the place of the log file is neither opened nor made.
func TestHostileFileOfLog(t *testing.T) {
	for what, put := range map[string]func(h *hostile) error{
		"a link":          func(h *hostile) error { return os.Symlink(h.victim, h.in("c/0.log")) },
		"a dangling link": func(h *hostile) error { return os.Symlink(filepath.Join(h.top, "made"), h.in("c/0.log")) },
		"a FIFO":          func(h *hostile) error { return unix.Mkfifo(h.in("c/0.log"), 0o666) },
		"a device": func(h *hostile) error {
			return unix.Mknod(h.in("c/0.log"), unix.S_IFCHR|0o666, int(unix.Mkdev(10, 130)))
		},
		"a directory": func(h *hostile) error { return os.Mkdir(h.in("c/0.log"), 0o755) },
		"a socket":    func(h *hostile) error { return unix.Mknod(h.in("c/0.log"), unix.S_IFSOCK|0o666, 0) },
	} {
		h := newHostile(t)
		h.check(put(h))
		for form, path := range h.paths() {
			if l, err := Open(path, Rotation{}); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("%s, %s: Open gives %v, %v", what, form, l, err)
			}
			for _, fixed := range []bool{false, true} {
				if _, err := OpenAgain(path, Rotation{}, fixed); !errdefs.IsFailedPrecondition(err) {
					t.Errorf("%s, %s: OpenAgain gives %v", what, form, err)
				}
			}
		}
		h.untouched()
	}
}

// TestHostileFolderOfLog: a link in the place of the container's directory, or above it, leads nowhere.
func TestHostileFolderOfLog(t *testing.T) {
	outside := func(h *hostile) error {
		return errors.Join(os.Mkdir(filepath.Join(h.top, "outside"), 0o755), os.Mkdir(filepath.Join(h.top, "outside/c"), 0o755))
	}
	for what, c := range map[string]struct {
		put func(h *hostile) error
		// administrators may have put a link there; only a path that was resolved before tells it from a container's
		above bool
	}{
		"the container's directory": {func(h *hostile) error {
			return errors.Join(outside(h), os.Remove(h.in("c")), os.Symlink(filepath.Join(h.top, "outside"), h.in("c")))
		}, false},
		"the pod's directory": {func(h *hostile) error {
			return errors.Join(outside(h), os.RemoveAll(h.in("")), os.Symlink(filepath.Join(h.top, "outside"), filepath.Join(h.top, "pods/pod")))
		}, true},
		"the directory of all pods": {func(h *hostile) error {
			return errors.Join(outside(h), os.Mkdir(filepath.Join(h.top, "outside/pod"), 0o755), os.Mkdir(filepath.Join(h.top, "outside/pod/c"), 0o755),
				os.RemoveAll(filepath.Join(h.top, "pods")), os.Symlink("outside", filepath.Join(h.top, "pods")))
		}, true},
	} {
		for form, path := range newHostile(t).paths() {
			_ = path
			h := newHostile(t)
			path := h.paths()[form]
			l, err := Open(path, Rotation{})
			h.check(err)
			_, err = l.Stream("stdout").Write([]byte("before\n"))
			h.check(err)
			h.check(os.Remove(h.in("c/0.log")))
			h.check(c.put(h))
			if !c.above || form == "resolved" {
				if err := l.Reopen(); !errdefs.IsFailedPrecondition(err) {
					t.Errorf("%s, %s: Reopen gives %v", what, form, err)
				}
				if _, err := OpenAgain(path, Rotation{}, false); !errdefs.IsFailedPrecondition(err) {
					t.Errorf("%s, %s: OpenAgain gives %v", what, form, err)
				}
				if _, err := Open(path, Rotation{}); !errdefs.IsFailedPrecondition(err) {
					t.Errorf("%s, %s: Open gives %v", what, form, err)
				}
				for _, made := range []string{"outside/0.log", "outside/c/0.log", "outside/pod/c/0.log"} {
					if _, err := os.Lstat(filepath.Join(h.top, made)); err == nil {
						t.Errorf("%s, %s: %s was made", what, form, made)
					}
				}
			}
			if _, err := l.Stream("stdout").Write([]byte("goes on\n")); err != nil {
				t.Errorf("%s, %s: after a Reopen that failed: %v", what, form, err)
			}
			h.check(l.Close())
			h.untouched()
		}
	}
}

// TestLogBehindAdministratorsLink: what the administrator has linked is followed: above the pod's directory, as older callers gave it.
func TestLogBehindAdministratorsLink(t *testing.T) {
	h := newHostile(t)
	h.check(os.Symlink("pods", filepath.Join(h.top, "log")))
	l, err := Open(filepath.Join(h.top, "log/pod/c/0.log"), Rotation{})
	h.check(err)
	_, err = l.Stream("stdout").Write([]byte("x\n"))
	h.check(errors.Join(err, l.Reopen(), l.Close()))
	if st, err := os.Stat(h.in("c/0.log")); err != nil || st.Size() == 0 {
		t.Error(err)
	}
}

// TestHostileRotation: whatever is put in the place of the file, or of those that were rotated away, while the log is written.
func TestHostileRotation(t *testing.T) {
	now := time.Date(2024, 1, 2, 2, 4, 5, 6, time.UTC)
	for what, put := range map[string]func(h *hostile) error{
		"a link in the file's place": func(h *hostile) error {
			return errors.Join(os.Remove(h.in("c/0.log")), os.Symlink(h.victim, h.in("c/0.log")))
		},
		"a FIFO in the file's place": func(h *hostile) error {
			return errors.Join(os.Remove(h.in("c/0.log")), unix.Mkfifo(h.in("c/0.log"), 0o666))
		},
		"links among the old": func(h *hostile) error {
			return errors.Join(os.Symlink(h.victim, h.in("c/0.log.20200101-000000")), os.Symlink(filepath.Join(h.top, "made"), h.in("c/0.log.20200101-000001")))
		},
		"a link in the folder's place": func(h *hostile) error {
			return errors.Join(os.Rename(h.in("c"), h.in("moved")), os.Mkdir(filepath.Join(h.top, "outside"), 0o755),
				os.Link(h.victim, filepath.Join(h.top, "outside/0.log")), os.Link(h.victim, filepath.Join(h.top, "outside/0.log.20200101-000000")),
				os.Symlink(filepath.Join(h.top, "outside"), h.in("c")))
		},
	} {
		h := newHostile(t)
		l, err := Open(h.paths()["resolved"], Rotation{MaxBytes: 2 * logged, MaxFiles: 2, Failed: func(err error) { t.Errorf("%s: %v", what, err) }})
		h.check(err)
		l.now = func() time.Time { return now }
		s := l.Stream("stdout")
		writeLines(t, s, 0, 2)
		h.check(put(h))
		writeLines(t, s, 2, 10)
		folder := h.in("c")
		if what == "a link in the folder's place" {
			folder = h.in("moved")
			for _, name := range []string{"0.log", "0.log.20200101-000000"} {
				if _, err := os.Lstat(filepath.Join(h.top, "outside", name)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		if got, files := contents(t, filepath.Join(folder, "0.log")); files != 2 || got[len(got)-1] != "000000009" {
			t.Errorf("%s: %d files with %q", what, files, got)
		}
		h.check(l.Close())
		h.untouched()
	}
}

// TestHostileRace: a container changes the file and its folder for links without a pause, while the log is opened, reopened and rotated.
func TestHostileRace(t *testing.T) {
	h := newHostile(t)
	h.check(os.Mkdir(filepath.Join(h.top, "outside"), 0o755))
	h.check(os.Link(h.victim, filepath.Join(h.top, "outside/0.log")))
	h.check(os.Symlink(h.victim, h.in("link")))
	h.check(os.Symlink(filepath.Join(h.top, "outside"), h.in("d")))
	h.check(os.WriteFile(h.in("c/0.log"), nil, 0o644))
	h.check(os.Rename(h.in("link"), h.in("c/link")))
	done := make(chan struct{})
	var attack sync.WaitGroup
	exchange := func(dir *os.File, a, b string) {
		for {
			select {
			case <-done:
				return
			default:
			}
			_ = unix.Renameat2(int(dir.Fd()), a, int(dir.Fd()), b, unix.RENAME_EXCHANGE) // the log may just be rotated
		}
	}
	// By descriptors: the container cannot write outside either.
	for _, names := range [][]string{{"c", "0.log", "link"}, {"", "c", "d"}} {
		dir, err := os.Open(h.in(names[0]))
		h.check(err)
		defer dir.Close()
		attack.Go(func() { exchange(dir, names[1], names[2]) })
	}
	path := h.paths()["resolved"]
	// An attacker that has no turn for a while leaves things as they are, maybe as a link: it goes on until enough of it was tried.
	opened, enough := 0, time.Now().Add(time.Minute)
	for tried := 0; tried < 2000 || opened < 100 && time.Now().Before(enough); tried++ {
		l, err := Open(path, Rotation{MaxBytes: 2 * logged, MaxFiles: 2})
		if err != nil {
			continue
		}
		opened++
		s := l.Stream("stdout")
		for range 4 {
			_, _ = s.Write([]byte("123456789\n"))
			_ = l.Reopen()
		}
		h.check(l.Close())
		if again, err := OpenAgain(path, Rotation{MaxBytes: 2 * logged, MaxFiles: 2}, false); err == nil {
			h.check(again.Close())
		}
	}
	close(done)
	attack.Wait()
	if opened < 100 {
		t.Errorf("the log could be opened %d times only: little was tried", opened)
	}
	h.untouched()
	if entries, err := os.ReadDir(filepath.Join(h.top, "outside")); err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}
