package main

import (
	"context"

	"monopod.dev/monopod/test/clitest"
)

// command runs a command line in this process.
func command(ctx context.Context, args ...string) (out, errs *clitest.Lines, err error) {
	return clitest.Command(ctx, newRootCommand(), args...)
}
