package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestArm(t *testing.T) {
	want := errors.New("armed")
	if err := Hit("a/point"); err != nil {
		t.Fatalf("a point that is not armed: %v", err)
	}
	disarm := Arm("a/point", func() error { return want })
	if err := Hit("a/point"); !errors.Is(err, want) {
		t.Fatalf("an armed point: got %v", err)
	}
	if err := Hit("another/point"); err != nil {
		t.Fatalf("another point: %v", err)
	}
	disarm()
	if err := Hit("a/point"); err != nil {
		t.Fatalf("a disarmed point: %v", err)
	}
}

// The first process that comes to the point is killed; the next ones, with the same environment, pass it.
func TestKillOnce(t *testing.T) {
	if os.Getenv(EnvVar) != "" {
		if err := Hit("a/point"); err != nil {
			t.Fatal(err)
		}
		return
	}
	marker := filepath.Join(t.TempDir(), "marker")
	for i, want := range []bool{false, true, true} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKillOnce$")
		cmd.Env = append(os.Environ(), EnvVar+"=a/point=kill-once:"+marker)
		out, err := cmd.CombinedOutput()
		if passed := err == nil; passed != want {
			t.Errorf("process %d: %v, want passed: %t\n%s", i+1, err, want, out)
		}
	}
}
