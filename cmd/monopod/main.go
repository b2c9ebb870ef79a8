// Command monopod is a Kubernetes node that stands on its own: `monopod up` runs all of it, the other commands run one
// role, or look at a node from outside.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cdi"
	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/cmd/monopod/device"
	"monopod.dev/monopod/cmd/monopod/image"
)

// version is set by the linker (see the Makefile).
var version = "0.0.0-dev"

func main() {
	runtime.MemProfileRate = 0 // nobody can fetch the profile, which takes memory of its own
	// The first SIGINT or SIGTERM asks for an orderly stop; a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes the command line and returns the exit code: 0, 1 for a failure, 2 for a command line or a
// configuration that cannot be used.
func run(ctx context.Context, args []string) int {
	code, why := cli.Execute(ctx, newRootCommand(), args)
	if why != "" {
		fmt.Fprintf(os.Stderr, "monopod: %s\n", why)
	}
	return code
}

// about is what 'monopod --help' begins with.
const about = `Monopod is single-node Kubernetes in one process: API server, agent, runtime, DNS and service proxy. Pods run
through the Kubernetes API, with the machine's devices in them.

  monopod check                      does this machine have what a node needs?
  monopod up                         run the node: API server, agent, runtime
  monopod status                     show the state of the node
  monopod trace POD                  show what took the time of a pod's start
  monopod image load FILE            load an image from an archive
  monopod device ls                  list devices, and the containers that have them
  monopod dns enable                 make the names of services resolve on this machine
  monopod kubeconfig --server HOST   use kubectl from another machine

Each role also runs alone: 'monopod runtime' is a CRI runtime for any kubelet, 'monopod node' an agent for any
cluster, 'monopod apiserver' an API server for any client.`

func newRootCommand() *cobra.Command {
	return cli.Root("monopod", "A Kubernetes node that stands on its own", about, version,
		newUpCommand(), newRuntimeCommand(), newAPIServerCommand(), newNodeCommand(),
		newStatusCommand(), newTraceCommand(), newDrainCommand(), newCheckCommand(), newFsckCommand(), newSnapshotCommand(), newResetCommand(),
		image.Command(), device.Command(), newVolumeCommand(), cdi.Command(), newDNSCommand(), newKubeconfigCommand(), newVersionCommand())
}
