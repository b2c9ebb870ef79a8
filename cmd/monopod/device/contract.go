package device

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/devices/contract"
	"monopod.dev/monopod/internal/devices/contract/judge"
)

func newTestCommand() *cobra.Command {
	var output string
	var verbose bool
	var cfg contract.Config
	cmd := &cobra.Command{
		Use:   "test [flags] {-- COMMAND [ARG...] | unix://SOCKET}",
		Short: "Test a device plugin against the contract of its API",
		Long: `Starts a device plugin (kubelet API v1beta1), tests it against everything that the API demands, and reports the
results, with a remedy for each fault. It tests registration, the list of devices, every way to allocate,
preferences, the start of containers, restarts of the node, invalid requests, and the end of the plugin.

The COMMAND runs in a mount namespace of its own, in which /var/lib/kubelet/device-plugins and plugins_registry are
directories of the test, and /var/run/cdi is a copy. No node needs to run on this machine; a running one is not
affected, and the host stays unchanged. The command needs root. Devices are really allocated: do not test a plugin
whose devices are in use.

unix://SOCKET tests a plugin that runs already, at its own socket, without registration, restarts and end.

Each check has a line that begins with ok, warn, FAIL or skip. docs/PLUGIN-AUTHORS.md explains the checks.

Exit codes: 0 if nothing failed, 1 if a check failed or the test could not be made, 2 for an invalid command line.`,
		Example: `  monopod device test -- ./my-plugin --verbose
  monopod device test --timeout 5s -o json -- ./my-plugin | jq '.checks[] | select(.verdict == "fail")'
  monopod device test unix:///var/lib/kubelet/device-plugins/gpu.sock`,
		Args: func(cmd *cobra.Command, args []string) error { return contractTarget(cmd, args, &cfg) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Timeout <= 0 {
				return &cli.UsageError{Err: fmt.Errorf("--timeout is %s: it must be more than 0", cfg.Timeout)}
			}
			if verbose {
				cfg.Output = os.Stderr
				cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			}
			return testContract(cmd, cfg, output)
		},
	}
	cli.FormatFlag(cmd, &output, cli.AsTable, cli.AsJSON)
	cmd.Flags().DurationVar(&cfg.Timeout, "timeout", contract.DefaultTimeout, "maximum `TIME` of each call, and of each wait for the plugin")
	cmd.Flags().StringSliceVar(&cfg.CDIDirs, "cdi-spec-dir", contract.DefaultCDIDirs, "directory of CDI specs (`DIR`) in which the plugin's CDI names are looked up; repeat it for several")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print the output of the plugin, and the node's log about it, to standard error")
	return cmd
}

// contractTarget takes the command or the socket.
func contractTarget(cmd *cobra.Command, args []string, cfg *contract.Config) error {
	dash := cmd.ArgsLenAtDash()
	before, after := args, []string(nil)
	if dash >= 0 {
		before, after = args[:dash], args[dash:]
	}
	usage := func(format string, a ...any) error {
		return &cli.UsageError{Err: fmt.Errorf(format+"; see '%s --help'", append(a, cmd.CommandPath())...)}
	}
	switch {
	case len(before) > 0 && len(after) > 0:
		return usage("there are both %q and a command: name one of the two", before[0])
	case len(after) > 0:
		if _, err := exec.LookPath(after[0]); err != nil {
			return usage("the command %q cannot be run: %v", after[0], err)
		}
		cfg.Command = after
	case len(before) == 1:
		socket, ok := strings.CutPrefix(before[0], "unix://")
		if !ok {
			return usage("%q is no socket, unix:///PATH; a command comes after '--'", before[0])
		}
		path, err := filepath.Abs(socket)
		if err != nil || socket == "" {
			return usage("%q has no path", before[0])
		}
		cfg.Socket = path
	case len(before) > 1:
		return usage("there are several arguments: %q; a command comes after '--'", before)
	default:
		return usage("name a command after '--', or a socket, unix:///PATH")
	}
	return nil
}

// testContract runs the test and prints the report; a table is printed as it grows.
func testContract(cmd *cobra.Command, cfg contract.Config, output string) error {
	var printed error
	if output != "json" {
		p := contract.Printer{W: os.Stdout}
		cfg.Tell = func(c judge.Check) { printed = errors.Join(printed, p.Check(c)) }
	}
	began := time.Now()
	report, err := contract.Run(cmd.Context(), cfg)
	if errdefs.IsInvalidArgument(err) {
		return &cli.UsageError{Err: err}
	}
	switch {
	case output == cli.AsJSON:
		printed = cli.PrintJSON(os.Stdout, report)
	case len(report.Checks) > 0:
		printed = errors.Join(printed, report.PrintEnd(os.Stdout))
	}
	if err := errors.Join(err, printed); err != nil {
		return err
	}
	if n := report.Count(judge.Fail); n > 0 {
		return fmt.Errorf("%s of the contract failed, after %s", cli.Count(n, "check"), judge.Time(time.Since(began)))
	}
	return nil
}
