package failpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// A process fails at the point once, and passes it from then on.
func TestErrorOnce(t *testing.T) {
	if os.Getenv(EnvVar) != "" {
		if first, second := Hit("a/point"), Hit("a/point"); first == nil || second != nil {
			t.Fatalf("first %v, then %v", first, second)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestErrorOnce$")
	cmd.Env = append(os.Environ(), EnvVar+"=a/point=error-once")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The process is killed at the hit of that number, whatever the point's name, and says which it was.
func TestKillAt(t *testing.T) {
	points := []string{"other/point", "a/one", "other/point", "a/two", "a/three"}
	if os.Getenv(EnvVar) != "" {
		for _, p := range points {
			if err := Hit(p); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for n, want := range map[int]string{1: "a/one", 2: "a/two", 3: "a/three", 4: ""} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestKillAt$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=a/...=kill-at:%d", EnvVar, n))
		var said strings.Builder
		cmd.Stderr = &said
		err := cmd.Run()
		if killed := err != nil; killed != (want != "") || want != "" && said.String() != "failpoint "+want+"\n" {
			t.Errorf("hit %d: %v, it said %q, want %q", n, err, &said, want)
		}
	}
}

// Each hit below the prefix is told, with the process, and does nothing else; a point that is armed by its name is not.
func TestTell(t *testing.T) {
	if os.Getenv(EnvVar) != "" {
		for _, p := range []string{"other/point", "a/one", "a/two", "a/one"} {
			if err := Hit(p); (err != nil) != (p == "a/two") {
				t.Fatal(p, err)
			}
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestTell$")
	cmd.Env = append(os.Environ(), EnvVar+"=a/...=tell,a/two=error")
	var said strings.Builder
	cmd.Stderr = &said
	err := cmd.Run()
	line := fmt.Sprintf("failpoint a/one pid=%d\n", cmd.ProcessState.Pid())
	if err != nil || said.String() != line+line {
		t.Errorf("%v, it said %q, want %q twice", err, &said, line)
	}
}

// Around does nothing after a failure, and what it does between two points that tests name.
func TestAround(t *testing.T) {
	broken := errors.New("broken")
	for _, at := range []string{"", "x/around/before", "do", "x/around/after"} {
		var seen []string
		point := func(name string) func() error {
			return func() error {
				seen = append(seen, name)
				if name == at {
					return broken
				}
				return nil
			}
		}
		first, last := Arm("x/around/before", point("x/around/before")), Arm("x/around/after", point("x/around/after"))
		err := Around("x/around", point("do"))
		first()
		last()
		if at == "" && err != nil || at != "" && (err != broken || seen[len(seen)-1] != at) {
			t.Errorf("broken at %q: %v, seen %v", at, err, seen)
		}
	}
}
