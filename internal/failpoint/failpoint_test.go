package failpoint

import (
	"errors"
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
