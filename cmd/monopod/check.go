package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/host/probe"
)

func newCheckCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether this machine has what a node needs",
		Long: `Checks whether this machine has everything that a node needs; shows what is missing, and what to do about it. Nothing
is changed. It takes the same settings as 'monopod up', and checks the same paths, ports and names.

Exit codes: 0 if a node would start, 1 if it would not, 2 for an invalid command line or configuration.`,
		Example: `  monopod check
  monopod check -o json --data-dir /srv/monopod`,
		Args: cli.NoArgs,
	}
	cfg := cli.AddConfiguration(cmd, config.All)
	cli.FormatFlag(cmd, &output, cli.AsTable, cli.AsJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.Load()
		if err != nil {
			return err
		}
		results := probe.Run(cmd.Context(), probeConfig(c, config.All))
		write := probe.WriteTable
		if output == cli.AsJSON {
			write = probe.WriteJSON
		}
		if err := write(os.Stdout, results); err != nil {
			return err
		}
		if probe.Worst(results) == probe.Fail {
			return fmt.Errorf("a node would not start here; see the rows that say FAIL")
		}
		return nil
	}
	return cmd
}

// preflight refuses to start on a machine that lacks something, before anything is made. files are those that the command reads beside the
// configuration.
func preflight(ctx context.Context, c *v1alpha1.NodeConfiguration, roles config.Roles, files ...probe.Place) error {
	p := probeConfig(c, roles)
	p.Files = files
	return probe.Err(probe.Run(ctx, p))
}

// probeConfig says what the roles will use of this machine.
func probeConfig(c *v1alpha1.NodeConfiguration, roles config.Roles) probe.Config {
	p := probe.Config{
		Containers: roles&config.Runtime != 0, Agent: roles&config.Agent != 0, DataDir: c.DataDir, CgroupRoot: c.CgroupRoot,
		Dirs: []probe.Place{{Name: "data", Path: c.DataDir, Flag: "--data-dir"}, {Name: "run", Path: c.RunDir, Flag: "--run-dir"}},
	}
	if roles&config.APIServer != 0 {
		p.Dirs = append(p.Dirs, probe.Place{Name: "kubeconfig", Path: filepath.Dir(c.APIServer.Kubeconfig), Flag: "--write-kubeconfig"})
		p.Ports = append(p.Ports, probe.Port{Name: "api", Address: c.APIServer.BindAddress, Port: int(*c.APIServer.Port), Flag: "--api-port"})
	}
	if roles&config.Agent != 0 {
		p.Dirs = append(p.Dirs, probe.Place{Name: "pod logs", Path: c.Agent.PodLogsDir, Flag: "--pod-logs-dir"})
		p.Dirs = append(p.Dirs, probe.Place{Name: "container logs", Path: c.Agent.ContainerLogsDir, Flag: "--container-logs-dir"})
		p.Ports = append(p.Ports, probe.Port{Name: "agent", Address: c.Agent.Address, Port: int(*c.Agent.Port), Flag: "--agent-port"})
	}
	if roles&(config.Agent|config.Runtime) == config.Agent {
		p.Sockets = append(p.Sockets, probe.Socket{Name: "cri", Path: c.Runtime.Socket, Flag: "--cri-socket", Asked: true})
	}
	if roles&config.Runtime != 0 {
		flag := "--cri-socket"
		if filepath.Dir(c.Runtime.Socket) == c.RunDir {
			flag = "--run-dir"
		}
		p.Sockets = append(p.Sockets, probe.Socket{Name: "cri", Path: c.Runtime.Socket, Flag: flag},
			probe.Socket{Name: "executor", Path: filepath.Join(c.RunDir, "executor.sock"), Flag: "--run-dir", Shared: true})
	}
	return p
}
