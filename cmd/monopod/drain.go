package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
)

func newDrainCommand() *cobra.Command {
	var socket string
	var grace, critical time.Duration
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "End all pods before the machine stops",
		Long: `Ends all pods of a running node, as it does by itself where systemd-logind tells that the machine stops (agent.shutdownGracePeriod). It is for
machines without systemd: their shutdown script calls it before it stops monopod.

Pods end in turns, at first all but those of the priority classes system-cluster-critical and system-node-critical, and then these. Each has its own
terminationGracePeriodSeconds, but no more than its turn has: --grace less --critical-grace, and then --critical-grace. A turn whose pods have ended does not
use up its time. How long turns are where neither is given, the configuration says (agent.shutdownGracePeriod...), else it is 30s, the last 10s of it for critical
pods; where one is given, a third is for critical pods.

A pod that was ended is Failed (Terminated), and pods that come meanwhile are (NodeShutdown); the node is not ready. Pods that have finished by themselves
keep their end.

A line tells of each pod that has ended. Who calls it again, or ends it with Ctrl-C, changes nothing of what goes on: the first call's times count. It is over when
monopod is started again: the node takes pods then, those that were ended stay so. There is no other way back.

Exit codes: 0 when all pods have ended; 1 when the time is over and some have not, which are named, or no node runs, or it ended meanwhile; 2 for a command line
that cannot be used. With --wait=false: 0 when the node has begun.`,
		Example: `  monopod drain && kill $(pidof monopod)
  monopod drain --grace 2m --critical-grace 20s`,
		Args: noArgs,
	}
	adminSocketFlag(cmd, &socket)
	cmd.Flags().DurationVar(&grace, "grace", 0, "how long the pods have (`DURATION`; default as configured, else 30s)")
	cmd.Flags().DurationVar(&critical, "critical-grace", 0, "the last part of it, for critical pods (`DURATION`; default as configured, else a third)")
	cmd.Flags().BoolVar(&wait, "wait", true, "false: return when the node has begun")
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
				return &usageError{fmt.Errorf("--%s is %s: use 0s or more", f.name, *f.value)}
			}
			*f.to = f.value
		}
		if req.Grace != nil && req.CriticalGrace != nil && critical > grace {
			return &usageError{fmt.Errorf("--critical-grace is %s, which is more than --grace, %s: it is a part of it", critical, grace)}
		}
		d := drain{out: cmd.OutOrStdout()}
		err := withNode(socket, func(c *client.Client) error { return c.Drain(cmd.Context(), req, wait, d.told) })
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

func podName(p protocol.DrainPod) string { return oneLine(p.Namespace + "/" + p.Name) }

func podNames(pods []protocol.DrainPod) string {
	var all []string
	for _, p := range pods {
		all = append(all, podName(p))
	}
	return strings.Join(all, ", ")
}
