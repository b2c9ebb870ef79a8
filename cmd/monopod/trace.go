package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/kit/oneline"
)

func newTraceCommand() *cobra.Command {
	var socket, format, namespace string
	cmd := &cobra.Command{
		Use:   "trace [NAMESPACE/]POD",
		Short: "Show what took the time of a pod's start",
		Long: `Shows the timeline of a pod's start, in milliseconds, from the POST to the API to the first line of each
container's log. It asks the running node over its administration socket, which only root can reach. If roles
were started separately with one run directory ('monopod node', 'monopod apiserver'), it asks all of them.

OFFSET is when a step began, TOOK how long it took; '>' marks a step that is still running. The steps of an
action are indented below it. A line that begins with '-' is a gap: time before the step that it names, in
which no known step was running. In the bars '=' is a step, '|' a moment and '.' a gap.

  POST                  the request that creates the pod: authentication, authorization, admission
  store, bind           the API server has validated and stored the pod; the pod is bound to its node
  seen by the agent     the agent has received the pod
  GrantDevices ...      actions of the agent and their parts; 'CRI ...' is a call to the runtime
  runs                  the runtime has reported the container as running
  status set, written   status queued; time until the API server has stored it
  first log line        the first line of the container's log, by its own time stamp

A failed step has a reason of one word; 'kubectl describe pod' has the messages.

A timeline ends when the pod is ready or has ended. The node keeps the timelines of the newest 500 pods since
its own start, in memory, and the first 64 steps of each.

Exit codes: 0 if the timeline was printed; 1 if the pod does not exist, its start is not recorded any more, or
no node answers; 2 for an invalid command line.`,
		Example: `  monopod trace web
  monopod trace web -n shop
  monopod trace shop/web
  monopod trace web -o json | jq '.steps[] | select(.step == "runs") | .offsetMilliseconds'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &cli.UsageError{Err: fmt.Errorf("%d arguments: name one pod; see 'monopod trace --help'", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("namespace") {
				namespace = ""
			}
			namespace, pod, err := podArgument(args[0], namespace)
			if err != nil {
				return err
			}
			t, err := askTrace(cmd.Context(), socket, namespace, pod)
			if err != nil {
				return err
			}
			now := time.Now()
			if format != cli.AsTable {
				return cli.PrintValue(cmd.OutOrStdout(), format, measured(t, now))
			}
			_, err = io.WriteString(cmd.OutOrStdout(), traceScreen(t, now))
			return err
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "the pod's `NAMESPACE`")
	cli.AdminSocketFlag(cmd, &socket)
	cli.FormatFlag(cmd, &format, cli.AsTable, cli.AsJSON, cli.AsYAML)
	return cmd
}

// podArgument is the pod that a command line names: POD, pod/POD or NAMESPACE/POD. chosen is the namespace of a flag; empty: there was none.
func podArgument(arg, chosen string) (namespace, pod string, err error) {
	return objectArgument(arg, chosen, "pod", "pod", "pods", "po")
}

// objectArgument is the object that a command line names: NAME, KIND/NAME or NAMESPACE/NAME. what is what it is, kinds what kubectl calls it.
func objectArgument(arg, chosen, what string, kinds ...string) (namespace, name string, err error) {
	namespace, name, both := strings.Cut(arg, "/")
	switch {
	case !both:
		namespace, name = cmp.Or(chosen, metav1.NamespaceDefault), arg
	case slices.Contains(kinds, namespace):
		namespace = cmp.Or(chosen, metav1.NamespaceDefault)
	case chosen != "" && chosen != namespace:
		return "", "", &cli.UsageError{Err: fmt.Errorf("%s is in namespace %s, but -n says %s: name one namespace", arg, namespace, chosen)}
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		placeholder := strings.ToUpper(what)
		return "", "", &cli.UsageError{Err: fmt.Errorf("%q names no %s: say %s or NAMESPACE/%s", arg, what, placeholder, placeholder)}
	}
	return namespace, name, nil
}

// askTrace asks the process at a socket; where that is where a node is looked for, also those that run other roles of it in the same directory.
func askTrace(ctx context.Context, socket, namespace, pod string) (protocol.Trace, error) {
	sockets := []string{socket}
	if dir, name := filepath.Split(socket); name == protocol.SocketName {
		sockets = append(sockets, filepath.Join(dir, protocol.APIServerSocketName))
	}
	var all []protocol.Trace
	var first error
	var without []protocol.Unknown
	for _, path := range sockets {
		err := cli.WithNode(path, func(c *client.Client) error {
			t, err := c.Trace(ctx, namespace, pod)
			if err == nil {
				all = append(all, t)
			}
			return err
		})
		switch {
		case err == nil || notThere(err):
		case errdefs.IsNotFound(err):
			without = append(without, protocol.Unknown{What: filepath.Base(path), Why: err.Error()})
		default:
			return protocol.Trace{}, err
		}
		if first == nil || notThere(first) && err != nil && !notThere(err) {
			first = err
		}
	}
	if len(all) == 0 {
		return protocol.Trace{}, first
	}
	t := oneTrace(all)
	t.NotAsked = append(t.NotAsked, without...)
	return t, nil
}

// oneTrace puts together what the processes of one node know of the newest pod of the name.
func oneTrace(all []protocol.Trace) protocol.Trace {
	newest := slices.MaxFunc(all, func(a, b protocol.Trace) int { return begun(a).Compare(begun(b)) })
	same := slices.DeleteFunc(all, func(t protocol.Trace) bool { return t.UID != newest.UID })
	one := protocol.Trace{Namespace: newest.Namespace, Pod: newest.Pod, UID: newest.UID, Steps: []protocol.Step{}, NotAsked: []protocol.Unknown{}}
	for i, t := range same {
		one.Steps = append(one.Steps, t.Steps...)
		one.Dropped += t.Dropped
		for _, u := range t.NotAsked {
			known := slices.ContainsFunc(same, func(o protocol.Trace) bool {
				return !slices.ContainsFunc(o.NotAsked, func(v protocol.Unknown) bool { return v.What == u.What })
			})
			told := slices.ContainsFunc(same[:i], func(o protocol.Trace) bool {
				return slices.ContainsFunc(o.NotAsked, func(v protocol.Unknown) bool { return v.What == u.What })
			})
			if !known && !told {
				one.NotAsked = append(one.NotAsked, u)
			}
		}
	}
	slices.SortStableFunc(one.Steps, func(a, b protocol.Step) int { return a.Begin.Compare(b.Begin) })
	return one
}

func begun(t protocol.Trace) time.Time {
	if len(t.Steps) == 0 {
		return time.Time{}
	}
	return t.Steps[0].Begin
}

// measuredTrace is a trace with its times as numbers.
type measuredTrace struct {
	protocol.Trace
	Steps []measuredStep `json:"steps"`
}

// measuredStep is a step with its times as numbers.
type measuredStep struct {
	protocol.Step
	// Offset is when it began, Took how long it took, or has taken until now.
	Offset float64 `json:"offsetMilliseconds"`
	Took   float64 `json:"milliseconds"`
}

func measured(t protocol.Trace, now time.Time) measuredTrace {
	m := measuredTrace{Trace: t, Steps: []measuredStep{}}
	for _, s := range t.Steps {
		m.Steps = append(m.Steps, measuredStep{Step: s, Offset: milliseconds(s.Begin.Sub(begun(t))), Took: milliseconds(ended(s, now).Sub(s.Begin))})
	}
	return m
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ended is when a step had ended, or now.
func ended(s protocol.Step, now time.Time) time.Time {
	if s.End == nil {
		return now
	}
	return *s.End
}

// The columns of the table, in characters: together 80.
const (
	offsetWide    = 9
	tookWide      = 8
	stepWide      = 26
	containerWide = 14
	barWide       = 18
)

// A gap is shown from this time on, or from this part of the whole, whichever is longer.
const (
	leastGap     = 500 * time.Microsecond
	leastGapPart = 100
)

func traceScreen(t protocol.Trace, now time.Time) string {
	var b strings.Builder
	from := begun(t)
	fmt.Fprintf(&b, "POD        %s/%s, UID %s\n", oneline.Of(t.Namespace), oneline.Of(t.Pod), oneline.Of(t.UID))
	if len(t.Steps) > 0 {
		fmt.Fprintf(&b, "BEGUN      %s, %s\n\n", from.Local().Format("2006-01-02 15:04:05.000"), cli.HumanAge(from, now))
		fmt.Fprintf(&b, "%*s %*s  %-*s %s\n", offsetWide, "OFFSET ms", tookWide, "TOOK ms", stepWide, "STEP", "FOR")
	}
	last := from
	for _, s := range t.Steps {
		last = maxTime(last, ended(s, now))
	}
	draw := drawing{from: from, whole: last.Sub(from)}
	busy := from
	for _, s := range t.Steps {
		if gap := s.Begin.Sub(busy); gap >= max(leastGap, draw.whole/leastGapPart) {
			draw.row(&b, busy, s.Begin, "", "- until "+s.Step, s.Container, '.')
		}
		name, mark, sign := s.Step, '=', ""
		if s.Part {
			name = "  " + name
		}
		if s.Outcome != "" {
			name += ": " + s.Outcome
		}
		if s.End == nil {
			sign = ">"
		} else if s.End.Equal(s.Begin) {
			mark = '|'
		}
		draw.row(&b, s.Begin, ended(s, now), sign, name, s.Container, mark)
		busy = maxTime(busy, ended(s, now))
	}
	if t.Dropped > 0 {
		fmt.Fprintf(&b, "\nNOT KEPT   %d later steps\n", t.Dropped)
	}
	for i, u := range t.NotAsked {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "NOT ASKED  %s: %s\n", oneline.Of(u.What), oneline.Of(u.Why))
	}
	return trimLines(b.String())
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// drawing is the scale of the bars.
type drawing struct {
	from  time.Time
	whole time.Duration
}

func (d drawing) row(w io.Writer, begin, end time.Time, sign, step, container string, mark rune) {
	took := ""
	if mark != '|' {
		took = fmt.Sprintf("%s%.1f", sign, milliseconds(end.Sub(begin)))
	}
	fmt.Fprintf(w, "%*.1f %*s  %-*s %-*s %s\n", offsetWide, milliseconds(begin.Sub(d.from)), tookWide, took,
		stepWide, cut(step, stepWide), containerWide, cut(container, containerWide), d.bar(begin, end, mark))
}

// bar is at least one character, also of what took no time.
func (d drawing) bar(begin, end time.Time, mark rune) string {
	at := func(t time.Time) int { return int(t.Sub(d.from) * barWide / max(d.whole, 1)) }
	from := min(at(begin), barWide-1)
	return strings.Repeat(" ", from) + strings.Repeat(string(mark), max(at(end)-from, 1))
}

// cut makes a text fit into a column.
func cut(s string, wide int) string {
	if s = oneline.Of(s); len(s) > wide {
		return s[:wide-2] + ".."
	}
	return s
}
