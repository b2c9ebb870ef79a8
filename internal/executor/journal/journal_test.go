package journal

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/smallfs"
)

// TestRoomIsReserved: an exit for which there was room is recorded on a full disk, once, and another one is not.
func TestRoomIsReserved(t *testing.T) {
	for _, kind := range smallfs.Kinds {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			smallfs.Mount(t, kind, 4<<20, dir)
			j, err := Open(dir, "now")
			if err != nil {
				t.Fatal(err)
			}
			const processes = 20
			for pid := range processes {
				if err := errors.Join(j.Reserve(pid, 7), j.Reserve(pid, 7)); err != nil {
					t.Fatal(err)
				}
				if e, ok, err := j.Get(pid, 7); ok || err != nil {
					t.Errorf("a process that has not ended has the exit %+v, %v", e, err)
				}
			}
			smallfs.Fill(t, dir)
			if err := j.Reserve(processes, 7); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("room on a full disk: %v", err)
			}
			if _, err := j.Put(Exit{PID: processes, StartTime: 7}); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("an exit without room: %v", err)
			}
			if e, ok, err := j.Get(processes, 7); ok {
				t.Errorf("an exit without room was recorded: %+v, %v", e, err)
			}
			for pid := range processes {
				for _, code := range []int{pid, 99} { // the first one counts
					if e, err := j.Put(Exit{PID: pid, StartTime: 7, Code: code, At: time.Now().UTC(), Executed: true}); err != nil || e.Code != pid {
						t.Errorf("exit of %d: %+v, %v", pid, e, err)
					}
				}
				if err := j.Reserve(pid, 7); err != nil {
					t.Error(err)
				}
				if e, ok, err := j.Get(pid, 7); !ok || err != nil || e.Code != pid || !e.Executed {
					t.Errorf("exit of %d: %+v, %v, %v", pid, e, ok, err)
				}
				if err := j.Remove(pid, 7); err != nil {
					t.Error(err)
				}
			}
			if err := j.Remove(processes, 7); err != nil {
				t.Error(err)
			}
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range left {
				if name := e.Name(); name != "lost+found" && name[:4] != "fill" {
					t.Errorf("left: %s", name)
				}
			}
		})
	}
}
