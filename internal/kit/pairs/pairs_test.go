package pairs

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A message of a pair that keeps them apart is read whole and alone, our end has deadlines, and the end of the other one is told.
func TestPackets(t *testing.T) {
	ours, theirs, err := Packets("test")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	for _, m := range []string{"one", "two"} {
		if _, err := theirs.WriteString(m); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 64)
	if n, err := ours.Read(buf); err != nil || string(buf[:n]) != "one" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if n, err := ours.Read(buf); err != nil || string(buf[:n]) != "two" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if err := ours.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want the deadline's end", err)
	}
	if err := errors.Join(ours.SetReadDeadline(time.Time{}), theirs.Close()); err != nil {
		t.Fatal(err)
	}
	if n, err := ours.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("read %q, %v behind the end", buf[:n], err)
	}
}

func TestStream(t *testing.T) {
	ours, theirs, err := Stream("test")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if _, err := theirs.WriteString("one"); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(ours); err != nil || string(got) != "one" {
		t.Errorf("read %q, %v", got, err)
	}
}

// No end reaches a program that is not given it.
func TestNoneIsInherited(t *testing.T) {
	a, b, err := Descriptors(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(a)
	defer unix.Close(b)
	for _, fd := range []int{a, b} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d has the flags %#x, %v", fd, flags, err)
		}
	}
}
