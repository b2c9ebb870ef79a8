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
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/node"
)

func newDNSCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dns",
		Short: "Have the cluster's names resolve on this machine, or not",
		Long: `Pods ask the cluster's DNS by themselves; these commands are about the machine: its programs, curl or psql, can reach services by their names,
web.default.svc.cluster.local. Where they ask systemd-resolved it is told which names to ask of the node; else a marked block in /etc/resolv.conf names the
node as the first server, which asks the others for all other names. 'monopod reset' takes it back, too.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDNSEnableCommand(), newDNSDisableCommand(), newDNSStatusCommand())
	return cmd
}

// dnsSettings are those that make a difference to the commands.
var dnsSettings = []string{"config", "data-dir", "bridge", "service-cidr", "cluster-domain"}

// dnsCommand makes a command that works with a node's configuration.
func dnsCommand(use, short, long string, do func(ctx context.Context, c *v1alpha1.NodeConfiguration, out io.Writer) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: "  monopod dns " + use, Args: noArgs}
	cfg := addConfiguration(cmd, config.All)
	showOnly(cmd, dnsSettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := cfg.load()
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, cmd.OutOrStdout())
	}
	return cmd
}

func newDNSEnableCommand() *cobra.Command {
	return dnsCommand("enable", "Have the cluster's names resolve on this machine",
		`Has the cluster's names resolve on this machine, now and after each start of the node. It may be repeated.`,
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
	return dnsCommand("disable", "Have the cluster's names resolve on this machine no more",
		`Takes back what 'monopod dns enable' has done. It may be repeated. Pods are not concerned.`,
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
	return dnsCommand("status", "Does the cluster's DNS answer, and do its names resolve on this machine?",
		`Asks the cluster's DNS, and this machine's resolver, for names of the cluster, and tells whether the latter is to know them.
It returns 0 whatever they say.`,
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
					machine += ", which is not so yet: the node sees to it when it runs"
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
