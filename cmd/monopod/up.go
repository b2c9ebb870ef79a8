package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/host/probe"
	"monopod.dev/monopod/internal/node"
)

func newUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the node: API server, controllers, agent, devices and runtime",
		Long: `Runs the node in the foreground until SIGTERM or Ctrl-C. Pods keep running when it stops, and the next
'monopod up' with the same directories finds them; with --ephemeral a stop removes the pods and all that the
node has made on the machine.

When the node is ready, one line on standard output says how to reach it. Under systemd (Type=notify) it says
READY=1 as well. The log goes to standard error.`,
		Example: `  monopod up
  monopod up --config /etc/monopod/config.yaml
  monopod up --ephemeral --data-dir /tmp/m/data --run-dir /tmp/m/run --write-kubeconfig /tmp/m/kubeconfig`,
		Args: noArgs,
	}
	cfg := addConfiguration(cmd, config.All)
	cfg.ephemeral = ephemeralFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.load()
		if err != nil {
			return err
		}
		if err := preflight(cmd.Context(), c, config.All); err != nil {
			return err
		}
		o := options(c, *cfg.ephemeral)
		o.OnReady = func() {
			fmt.Printf("The node %s is ready. Try: kubectl --kubeconfig %s get nodes,pods -A -o wide\n", c.NodeName, c.APIServer.Kubeconfig)
			notifyReady()
		}
		return node.Up(cmd.Context(), o)
	}
	return cmd
}

func newRuntimeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Run the CRI runtime alone, for anybody's kubelet",
		Long: `Serves CRI v1 (RuntimeService and ImageService) on a unix socket, for a kubelet's
--container-runtime-endpoint, for crictl, or for 'monopod node'. Containers keep running when it stops.

With --kubeconfig it enforces the network policies of that API server for pods on the built-in network.`,
		Example: `  monopod runtime
  crictl --runtime-endpoint unix:///run/monopod/cri.sock pods`,
		Args: noArgs,
	}
	cfg := addConfiguration(cmd, config.Runtime)
	cfg.ephemeral = ephemeralFlag(cmd)
	kubeconfig := cmd.Flags().String("kubeconfig", "", "`FILE` that says where the API server is whose network policies are enforced, and who does it (default: none are)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.load()
		if err != nil {
			return err
		}
		var places []probe.Place
		if *kubeconfig != "" {
			places = append(places, probe.Place{Name: "kubeconfig", Path: *kubeconfig, Flag: "--kubeconfig"})
		}
		if err := preflight(cmd.Context(), c, config.Runtime, places...); err != nil {
			return err
		}
		var kube *rest.Config
		if *kubeconfig != "" {
			if kube, err = clientcmd.BuildConfigFromFlags("", *kubeconfig); err != nil {
				return &usageError{fmt.Errorf("--kubeconfig %s: %w", *kubeconfig, err)}
			}
		}
		o := options(c, *cfg.ephemeral)
		o.OnReady = func() {
			fmt.Printf("CRI v1 is served at unix://%s\n", c.Runtime.Socket)
			notifyReady()
		}
		return node.Runtime(cmd.Context(), o, kube)
	}
	return cmd
}

func newAPIServerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apiserver",
		Short: "Run the API server and the controllers alone, for anybody's client",
		Args:  noArgs,
	}
	cfg := addConfiguration(cmd, config.APIServer)
	cfg.ephemeral = ephemeralFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.load()
		if err != nil {
			return err
		}
		if err := preflight(cmd.Context(), c, config.APIServer); err != nil {
			return err
		}
		o := options(c, *cfg.ephemeral)
		o.OnReady = func() {
			fmt.Printf("The API server is ready. Try: kubectl --kubeconfig %s get namespaces\n", c.APIServer.Kubeconfig)
			notifyReady()
		}
		return node.APIServer(cmd.Context(), o)
	}
	return cmd
}

func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run the agent alone: a node of anybody's cluster, on anybody's CRI runtime",
		Long: `Runs the agent and the devices. The API server is the one of --kubeconfig, whose user should be
system:node:NAME in the group system:nodes; the runtime is the one at --cri-socket.

The agent serves logs and exec on --agent-port with the given certificate; callers are held against --client-ca, or
against the API server by their token.`,
		Example: `  monopod node --kubeconfig node.kubeconfig --serving-cert a.crt --serving-key a.key --client-ca ca.crt \
    --cri-socket /run/containerd/containerd.sock`,
		Args: noArgs,
	}
	cfg := addConfiguration(cmd, config.Agent|config.Devices)
	var kubeconfig string
	var cred node.Credentials
	for flag, target := range map[string]*string{"kubeconfig": &kubeconfig, "serving-cert": &cred.ServingCert,
		"serving-key": &cred.ServingKey, "client-ca": &cred.ClientCA} {
		cmd.Flags().StringVar(target, flag, "", nodeFileUsage[flag])
		_ = cmd.MarkFlagRequired(flag) // fails only for a flag that does not exist
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.load()
		if err != nil {
			return err
		}
		if err := preflight(cmd.Context(), c, config.Agent|config.Devices, probe.Place{Name: "kubeconfig", Path: kubeconfig, Flag: "--kubeconfig"},
			probe.Place{Name: "serving certificate", Path: cred.ServingCert, Flag: "--serving-cert"},
			probe.Place{Name: "serving key", Path: cred.ServingKey, Flag: "--serving-key"},
			probe.Place{Name: "client authorities", Path: cred.ClientCA, Flag: "--client-ca"}); err != nil {
			return err
		}
		kube, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return &usageError{fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)}
		}
		o := options(c, false)
		o.OnReady = func() {
			fmt.Printf("The node %s is ready.\n", c.NodeName)
			notifyReady()
		}
		return node.Agent(cmd.Context(), o, kube, cred)
	}
	return cmd
}

var nodeFileUsage = map[string]string{
	"kubeconfig":   "`FILE` that says where the API server is and who the node is",
	"serving-cert": "certificate `FILE` (PEM) of the agent's HTTPS API",
	"serving-key":  "its key `FILE` (PEM)",
	"client-ca":    "`FILE` (PEM) of the authorities whose client certificates are accepted",
}

func ephemeralFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("ephemeral", false, "remove everything at the end; the directories must be new or empty")
}

func options(c *v1alpha1.NodeConfiguration, ephemeral bool) node.Options {
	return node.Options{Config: c, Ephemeral: ephemeral, Version: version, Log: newLogger(c.Logging, os.Stderr)}
}

// defaultSocket is where the commands that talk to a running node look for its CRI socket.
var defaultSocket = filepath.Join("/run/monopod", "cri.sock")
