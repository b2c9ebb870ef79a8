//go:build cgo

package spawn

/*
#include "stub.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrEnded says that the process has ended without a word: it was killed.
var ErrEnded = errors.New("the process has ended before it executed its program")

// AwaitReady returns when the process waits at its gate. A ProgramError says that it could not get there, and has ended.
func AwaitReady(ctx context.Context, status *os.File) error {
	text, err := receive(ctx, status)
	switch {
	case errors.Is(err, io.EOF):
		return ErrEnded
	case err != nil:
		return err
	case text[0] == C.STATUS_READY:
		return nil
	case text[0] == C.STATUS_BROKEN:
		return errors.New(string(text[1:]))
	}
	return &ProgramError{string(text[1:])}
}

// AwaitExecution returns when the process, whose gate is open, has executed its program, or has ended without: which of both, only the
// process tells. A ProgramError says that the program cannot be executed.
func AwaitExecution(ctx context.Context, status *os.File) error {
	text, err := receive(ctx, status)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	case text[0] == C.STATUS_ERROR:
		return &ProgramError{string(text[1:])}
	}
	return fmt.Errorf("the process says %q, which means nothing here", text)
}

// receive takes one message.
func receive(ctx context.Context, status *os.File) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { status.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 4352)
	n, err := status.Read(buf)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return buf[:n], err
}
