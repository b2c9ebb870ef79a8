package image

import (
	"fmt"
	"io"
	"syscall"
	"testing"
)

func TestWhatIsTriedAgain(t *testing.T) {
	for err, want := range map[error]bool{
		io.ErrUnexpectedEOF:                            true,
		fmt.Errorf("%w: %w", errWrite, syscall.ENOSPC): false,
		fmt.Errorf("x: %w", errStale):                  false,
	} {
		if got := mayPass(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
