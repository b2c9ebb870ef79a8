package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/node"
)

func newDNSCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dns",
		Short: "Make the cluster's names resolve on this machine, or stop that",
		Long: `With 'monopod dns enable', the programs on this machine, such as curl or psql, can reach services by their
names: web.default.svc.cluster.local. Pods can do so in any case.

If the machine uses systemd-resolved, it is told to ask the node for the cluster's names. Otherwise a marked
block in /etc/resolv.conf makes the node the first server; the node asks the other servers for all other names.
'monopod dns disable' and 'monopod reset' undo this.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDNSEnableCommand(), newDNSDisableCommand(), newDNSStatusCommand())
	return cmd
}

// dnsSettings are those that make a difference to the commands.
var dnsSettings = []string{"config", "data-dir", "bridge", "service-cidr", "cluster-domain"}

// dnsCommand makes a command that works with a node's configuration.
func dnsCommand(use, short, long string, do func(ctx context.Context, c *v1alpha1.NodeConfiguration, out io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: "  monopod dns " + use, Args: cli.NoArgs}
	cfg := cli.AddConfiguration(cmd, config.All)
	cli.ShowOnly(cmd, dnsSettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.Load()
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, cmd.OutOrStdout())
	}
	return cmd
}

func newDNSEnableCommand() *cobra.Command {
	return dnsCommand("enable", "Make the cluster's names resolve on this machine",
		`Makes the cluster's names resolve on this machine, now and after each start of the node. You may run it again at any time.`,
		func(ctx context.Context, c *v1alpha1.NodeConfiguration, out io.Writer) error {
			if _, err := os.Stat(c.DataDir); err != nil {
				return fmt.Errorf("there is no node: %w; start it first, or name its --data-dir", err)
			}
			s, err := node.HostNames(c, nil).Enable(ctx)
			if err != nil {
				return fmt.Errorf("names of the cluster do not resolve on this machine: %w", err)
			}
			what := "resolve already"
			if s.Changed {
				what = "resolve now"
			}
			if s.Waits {
				what = "will resolve when the node has started"
			}
			_, err = fmt.Fprintf(out, "names of %s %s on this machine, by %s (%s)\n", c.Agent.ClusterDomain, what, s.How, s.Place)
			return err
		})
}

func newDNSDisableCommand() *cobra.Command {
	return dnsCommand("disable", "Stop resolving the cluster's names on this machine",
		`Undoes 'monopod dns enable'. You may run it again at any time. It does not affect pods.`,
		func(ctx context.Context, c *v1alpha1.NodeConfiguration, out io.Writer) error {
			s, err := node.HostNames(c, nil).Disable(ctx)
			if err != nil {
				return fmt.Errorf("names of the cluster may still resolve on this machine: %w", err)
			}
			what := "did not resolve on this machine"
			if s.Changed {
				what = fmt.Sprintf("resolve on this machine no more (%s)", s.Place)
			}
			_, err = fmt.Fprintf(out, "names of %s %s\n", c.Agent.ClusterDomain, what)
			return err
		})
}

func newDNSStatusCommand() *cobra.Command {
	return dnsCommand("status", "Show whether the cluster's DNS answers, and whether its names resolve on this machine",
		`Asks the cluster's DNS and this machine's resolver for names of the cluster, and shows whether 'monopod dns enable' is in
effect. The exit code is 0 whatever they answer.`,
		func(ctx context.Context, c *v1alpha1.NodeConfiguration, out io.Writer) error {
			s, err := node.HostNames(c, nil).Status()
			if err != nil {
				return err
			}
			for _, a := range node.DNSAddresses(c) {
				if _, err := fmt.Fprintf(out, "SERVER   %s %s\n", a, answers(ctx, a, c.Agent.ClusterDomain)); err != nil {
					return err
				}
			}
			machine := "disabled: monopod dns enable would change " + s.Place
			if s.Enabled {
				machine = fmt.Sprintf("enabled, by %s (%s)", s.How, s.Place)
				if s.Waits {
					machine += ", not in effect yet: it takes effect when the node runs"
				}
			}
			_, err = fmt.Fprintf(out, "MACHINE  %s; %s\n", machine, resolves(ctx, c.Agent.ClusterDomain))
			return err
		})
}

// askTime bounds each question.
const askTime = 5 * time.Second

// answers asks a server for the version of the specification by which it answers.
func answers(ctx context.Context, server netip.Addr, domain string) string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(server.String(), "53"))
	}}
	version, err := r.LookupTXT(ctx, "dns-version."+domain+".")
	if err != nil {
		return "does not answer: " + err.Error()
	}
	return "answers for " + domain + ", version " + strings.Join(version, " ")
}

// resolves asks as the machine's programs do.
func resolves(ctx context.Context, domain string) string {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	name := "kubernetes.default.svc." + domain
	all, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, name+".")
	if err != nil {
		return name + " does not resolve"
	}
	return name + " is " + strings.Join(all, " ")
}
