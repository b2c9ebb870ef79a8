package cdi

import (
	"context"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/test/clitest"
)

func root() *cobra.Command { return cli.Root("monopod", "", "", "test", Command()) }

// command runs a command line in this process.
func command(ctx context.Context, args ...string) (out, errs *clitest.Lines, err error) {
	return clitest.Command(ctx, root(), args...)
}
