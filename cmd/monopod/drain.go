package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/kit/oneline"
)

func newDrainCommand() *cobra.Command {
	var socket string
	var grace, critical time.Duration
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "End all pods before the machine stops",
		Long: `Ends all pods of a running node before the machine stops. With systemd the node does so itself
(agent.shutdownGracePeriod). Without systemd, run this command in the shutdown script, before you stop monopod.

Ordinary pods end first, then the pods of the priority classes system-cluster-critical and
system-node-critical. Each pod has its own terminationGracePeriodSeconds, but at most the time of its turn:
--grace minus --critical-grace for ordinary pods, --critical-grace for critical pods. A turn ends early if all
its pods have ended. Without these flags, the configured times apply (agent.shutdownGracePeriod...); if none
are configured, 30s, of which the last 10s are for critical pods.

The pods that are ended become Failed with the reason Terminated, new pods become Failed with NodeShutdown,
and the node is not ready. Pods that had finished before keep their phase. The node takes pods again when
monopod is restarted; pods that were ended stay ended.

The command prints a line for each pod that has ended. Running it again, or pressing Ctrl-C, does not affect a
drain in progress; the times of the first call apply.

Exit codes: 0 if all pods have ended; 1 if some have not ended in time (they are named), no node runs, or the
node ended meanwhile; 2 for an invalid command line. With --wait=false: 0 if the drain has begun.`,
		Example: `  monopod drain && kill $(pidof monopod)
  monopod drain --grace 2m --critical-grace 20s`,
		Args: cli.NoArgs,
	}
	cli.AdminSocketFlag(cmd, &socket)
	cmd.Flags().DurationVar(&grace, "grace", 0, "`DURATION` in which all pods have to end (default: as configured, else 30s)")
	cmd.Flags().DurationVar(&critical, "critical-grace", 0, "`DURATION` at the end of --grace that is reserved for critical pods (default: as configured, else a third of --grace)")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until all pods have ended; false: return when the drain has begun")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var req protocol.DrainRequest
		for _, f := range []struct {
			name  string
			value *time.Duration
			to    **time.Duration
		}{{"grace", &grace, &req.Grace}, {"critical-grace", &critical, &req.CriticalGrace}} {
			if !cmd.Flags().Changed(f.name) {
				continue
			}
			if *f.value < 0 {
				return &cli.UsageError{Err: fmt.Errorf("--%s is %s: use 0s or more", f.name, *f.value)}
			}
			*f.to = f.value
		}
		if req.Grace != nil && req.CriticalGrace != nil && critical > grace {
			return &cli.UsageError{Err: fmt.Errorf("--critical-grace is %s, which is more than --grace, %s: it is a part of it", critical, grace)}
		}
		d := drain{out: cmd.OutOrStdout()}
		err := cli.WithNode(socket, func(c *client.Client) error { return c.Drain(cmd.Context(), req, wait, d.told) })
		if err != nil || !wait {
			return err
		}
		return d.result()
	}
	return cmd
}

// drain prints how far a drain is.
type drain struct {
	out  io.Writer
	last *protocol.Drain
}

// told prints what is new.
func (d *drain) told(now protocol.Drain) error {
	var lines []string
	switch {
	case d.last == nil:
		lines = append(lines, d.first(now))
	case !d.last.Known && now.Known:
		lines = append(lines, podsToEnd(now))
	}
	if d.last != nil {
		for _, p := range d.last.Pods {
			if !slices.ContainsFunc(now.Pods, func(o protocol.DrainPod) bool { return o.Namespace == p.Namespace && o.Name == p.Name }) {
				lines = append(lines, podName(p)+" has ended")
			}
		}
		if now.Turn > d.last.Turn && !now.Finished && now.Turn == now.Turns {
			lines = append(lines, "the pods of the highest priority end now")
		}
	}
	d.last = &now
	for _, l := range lines {
		if _, err := fmt.Fprintln(d.out, l); err != nil {
			return err
		}
	}
	return nil
}

func (d *drain) first(now protocol.Drain) string {
	line := "the node is drained"
	if now.Joined {
		line = "the node is drained already, since " + clock(now.Begun)
	}
	if !now.Finished {
		line += "; its pods have until " + clock(now.Until)
	}
	if now.Known {
		line += "\n" + podsToEnd(now)
	}
	return line
}

func podsToEnd(now protocol.Drain) string {
	switch len(now.Pods) {
	case 0:
		return "no pod runs"
	case 1:
		return "1 pod runs: " + podNames(now.Pods)
	}
	return fmt.Sprintf("%d pods run: %s", len(now.Pods), podNames(now.Pods))
}

// result says how it has ended.
func (d *drain) result() error {
	switch {
	case d.last == nil || !d.last.Active:
		return fmt.Errorf("the machine does not stop any more: the node takes pods again")
	case !d.last.Known:
		return fmt.Errorf("the time is over, and the node does not know yet which pods it has: it is being started, and its runtime or API server does not answer")
	case len(d.last.Pods) > 0:
		return fmt.Errorf("the time is over, and these pods have not ended: %s", podNames(d.last.Pods))
	}
	_, err := fmt.Fprintln(d.out, "all pods have ended")
	return err
}

func clock(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format(time.TimeOnly)
}

func podName(p protocol.DrainPod) string { return oneline.Of(p.Namespace + "/" + p.Name) }

func podNames(pods []protocol.DrainPod) string {
	var all []string
	for _, p := range pods {
		all = append(all, podName(p))
	}
	return strings.Join(all, ", ")
}
