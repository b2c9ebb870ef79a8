package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/host/probe"
	"monopod.dev/monopod/internal/node"
)

func newUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the node: API server, controllers, agent, devices and runtime",
		Long: `Runs the node in the foreground until SIGTERM or Ctrl-C. Pods keep running when it stops, and the next 'monopod up'
with the same directories finds them. With --ephemeral, a stop removes the pods and everything else that the node
has made on the machine.

When the node is ready, one line on standard output says how to reach it. Under systemd (Type=notify) it also
reports READY=1. The log goes to standard error.`,
		Example: `  monopod up
  monopod up --config /etc/monopod/config.yaml
  monopod up --ephemeral --data-dir /tmp/m/data --run-dir /tmp/m/run --write-kubeconfig /tmp/m/kubeconfig`,
		Args: cli.NoArgs,
	}
	cfg := cli.AddConfiguration(cmd, config.All)
	cfg.Ephemeral = ephemeralFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return start(cmd.Context(), cfg, config.All, nil, func(c *v1alpha1.NodeConfiguration) string {
			return fmt.Sprintf("The node %s is ready. Try: kubectl --kubeconfig %s get nodes,pods -A -o wide", c.NodeName, c.APIServer.Kubeconfig)
		}, node.Up)
	}
	return cmd
}

// start runs roles of a node, until ctx ends, on a machine that has what they need. files are those that the command reads beside the configuration; ready is the line that
// says that the roles are.
func start(ctx context.Context, c *cli.Configuration, roles config.Roles, files []probe.Place, ready func(*v1alpha1.NodeConfiguration) string, run func(context.Context, node.Options) error) error {
	n, err := c.Load()
	if err != nil {
		return err
	}
	if err := preflight(ctx, n, roles, files...); err != nil {
		return err
	}
	o := options(n, c.Ephemeral != nil && *c.Ephemeral)
	o.OnReady = func() {
		fmt.Println(ready(n))
		notifyReady()
	}
	return run(ctx, o)
}

func newRuntimeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Run the CRI runtime alone, for any kubelet",
		Long: `Serves CRI v1 (RuntimeService and ImageService) on a unix socket, for a kubelet's --container-runtime-endpoint, for
crictl, or for 'monopod node'. Containers keep running when it stops.

With --kubeconfig it enforces the network policies of that API server for pods on the built-in network.`,
		Example: `  monopod runtime
  crictl --runtime-endpoint unix:///run/monopod/cri.sock pods`,
		Args: cli.NoArgs,
	}
	cfg := cli.AddConfiguration(cmd, config.Runtime)
	cfg.Ephemeral = ephemeralFlag(cmd)
	kubeconfig := cmd.Flags().String("kubeconfig", "", "kubeconfig `FILE` of the API server whose network policies are enforced (default: none are enforced)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var files []probe.Place
		if *kubeconfig != "" {
			files = append(files, probe.Place{Name: "kubeconfig", Path: *kubeconfig, Flag: "--kubeconfig"})
		}
		return start(cmd.Context(), cfg, config.Runtime, files, func(c *v1alpha1.NodeConfiguration) string {
			return "CRI v1 is served at unix://" + c.Runtime.Socket
		}, func(ctx context.Context, o node.Options) error {
			if *kubeconfig == "" {
				return node.Runtime(ctx, o, nil)
			}
			kube, err := reach(*kubeconfig)
			if err != nil {
				return err
			}
			return node.Runtime(ctx, o, kube)
		})
	}
	return cmd
}

// reach reads the kubeconfig that a command was given.
func reach(kubeconfig string) (*rest.Config, error) {
	kube, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)}
	}
	return kube, nil
}

func newAPIServerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apiserver",
		Short: "Run the API server and the controllers alone, for any client",
		Long: `Runs the API server and the controllers in the foreground until SIGTERM or Ctrl-C, without an agent and a runtime.
The objects are in an embedded etcd, or in the one of --etcd-servers, which several API servers may share. When it
is ready, one line on standard output says how to reach it, with the kubeconfig that it has written.`,
		Example: `  monopod apiserver
  monopod apiserver --etcd-servers https://10.0.0.1:2379 --etcd-cafile /etc/monopod/etcd/ca.crt \
    --etcd-certfile /etc/monopod/etcd/client.crt --etcd-keyfile /etc/monopod/etcd/client.key`,
		Args: cli.NoArgs,
	}
	cfg := cli.AddConfiguration(cmd, config.APIServer)
	cfg.Ephemeral = ephemeralFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return start(cmd.Context(), cfg, config.APIServer, nil, func(c *v1alpha1.NodeConfiguration) string {
			return fmt.Sprintf("The API server is ready. Try: kubectl --kubeconfig %s get namespaces", c.APIServer.Kubeconfig)
		}, node.APIServer)
	}
	return cmd
}

func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the agent alone: a node of any cluster, on any CRI runtime",
		Long: `Runs the agent and the devices. --kubeconfig names the API server, and the user, who should be system:node:NAME in
the group system:nodes. The runtime is the one at --cri-socket.

The agent serves logs and exec on --agent-port with the given certificate. It accepts clients with a certificate of
an authority in --client-ca, or with a token that the API server accepts; the API server authorizes them.`,
		Example: `  monopod node --kubeconfig node.kubeconfig --serving-cert a.crt --serving-key a.key --client-ca ca.crt \
    --cri-socket /run/containerd/containerd.sock`,
		Args: cli.NoArgs,
	}
	cfg := cli.AddConfiguration(cmd, config.Agent|config.Devices)
	var kubeconfig string
	var cred node.Credentials
	for flag, target := range map[string]*string{"kubeconfig": &kubeconfig, "serving-cert": &cred.ServingCert,
		"serving-key": &cred.ServingKey, "client-ca": &cred.ClientCA} {
		cmd.Flags().StringVar(target, flag, "", nodeFileUsage[flag])
		_ = cmd.MarkFlagRequired(flag) // fails only for a flag that does not exist
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		files := []probe.Place{
			{Name: "kubeconfig", Path: kubeconfig, Flag: "--kubeconfig"}, {Name: "serving certificate", Path: cred.ServingCert, Flag: "--serving-cert"},
			{Name: "serving key", Path: cred.ServingKey, Flag: "--serving-key"}, {Name: "client authorities", Path: cred.ClientCA, Flag: "--client-ca"},
		}
		return start(cmd.Context(), cfg, config.Agent|config.Devices, files, func(c *v1alpha1.NodeConfiguration) string {
			return fmt.Sprintf("The node %s is ready.", c.NodeName)
		}, func(ctx context.Context, o node.Options) error {
			kube, err := reach(kubeconfig)
			if err != nil {
				return err
			}
			return node.Agent(ctx, o, kube, cred)
		})
	}
	return cmd
}

var nodeFileUsage = map[string]string{
	"kubeconfig":   "kubeconfig `FILE` with the API server and the node's user",
	"serving-cert": "certificate `FILE` (PEM) of the agent's HTTPS API",
	"serving-key":  "key `FILE` (PEM) of the serving certificate",
	"client-ca":    "`FILE` (PEM) of the authorities whose client certificates are accepted",
}

func ephemeralFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("ephemeral", false, "remove everything when the process ends; the directories must be new or empty")
}

func options(c *v1alpha1.NodeConfiguration, ephemeral bool) node.Options {
	return node.Options{Config: c, Ephemeral: ephemeral, Version: version, Log: newLogger(c.Logging, os.Stderr)}
}
