package device

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/devices/report"
	"monopod.dev/monopod/internal/kit/oneline"
)

func newListCommand(socket *string) *cobra.Command {
	var format string
	var watch bool
	cmd := &cobra.Command{
		Use:     "ls [RESOURCE]",
		Aliases: []string{"list"},
		Short:   "List the devices, and who has them",
		Long: `Lists the devices of a running node, of one RESOURCE or of all. Each line is a device:

  RESOURCE   the extended resource that counts it
  DEVICE     its name. Long names are shortened in the middle; -o wide shows them in full. A name with control
             characters is quoted
  HEALTH     Healthy, Unhealthy (it is known and cannot be granted), or Missing (a container was granted it, and
             nothing defines it any more)
  NUMA       the NUMA nodes that it is near
  SOURCE     the file of the CDI spec, or the socket of the device plugin, that defines it; -o wide shows the path
  HOLDER     the container that has it, NAMESPACE/POD/CONTAINER; +N: N more containers have it, such as init
             containers, which pass it on. "free": no container has it; +N: N more shares of it are free.
             "excluded": it is the same hardware as a device that a container has, or a part of it. "-": it stands
             for all devices of its resource, and is never granted together with them

A device that several containers may have at a time (devices.sharing, 'monopod device add --share') has a line for
each share that a container has (DEVICE, DEVICE#2 and so on), and one line for the free shares; -o wide, json and
yaml show all shares.

-o wide adds the other names of a device, its nodes on the host, and the reason why it is not healthy. -o json and
-o yaml show everything that is known.

With --watch, a line for each change follows the list. With -o json it is an object: {"type": "listed" | "synced" |
"added" | "changed" | "removed" | "problem" | "solved", "device": ..., "problem": ...}. Objects before "synced"
show the state at the start. -o yaml prints the same as documents. The watch ends with Ctrl-C, or with an error
when the node ends.

Problems of the definitions of devices, such as a CDI spec that cannot be read, go to standard error after the
list.

Exit codes: 0 if the list was printed, or Ctrl-C ended a watch; 1 if no node runs, it knows no such RESOURCE, or it
ended during a watch; 2 for an invalid command line.`,
		Example: `  monopod device ls
  monopod device ls -o wide nvidia.com/gpu
  monopod device ls -o json | jq -r '.devices[] | select(.holders == [] and .health == "Healthy") | .resource + "=" + .name'
  monopod device ls --watch`,
		Args: oneResource,
		RunE: func(cmd *cobra.Command, args []string) error {
			resource := strings.Join(args, "")
			return cli.WithNode(*socket, func(c *client.Client) error {
				if watch {
					w := deviceWatch{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), format: format}
					if err := c.WatchDevices(cmd.Context(), resource, w.event); !cli.Interrupted(cmd.Context(), err) {
						return err
					}
					return nil
				}
				list, err := c.Devices(cmd.Context(), resource)
				if err != nil {
					return err
				}
				return printDevices(cmd.OutOrStdout(), cmd.ErrOrStderr(), format, list)
			})
		},
	}
	cli.FormatFlag(cmd, &format, cli.AsTable, cli.AsWide, cli.AsJSON, cli.AsYAML)
	cli.CompleteNames(cmd, false, resourceNames(socket))
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "after the list, print each change")
	return cmd
}

// oneResource takes a RESOURCE, or nothing.
func oneResource(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return &cli.UsageError{Err: fmt.Errorf("name one resource, or none for all, not %d; see '%s --help'", len(args), cmd.CommandPath())}
	}
	return nil
}

func printDevices(out, problems io.Writer, format string, l report.List) error {
	if format == cli.AsJSON || format == cli.AsYAML {
		return cli.PrintValue(out, format, l)
	}
	if _, err := io.WriteString(out, deviceTable(l.Devices, format == cli.AsWide)); err != nil {
		return err
	}
	for _, p := range l.Problems {
		fmt.Fprintln(problems, "problem:", oneline.Of(p.String()))
	}
	return nil
}

// deviceTable is the table, with its head.
func deviceTable(all []report.Device, wide bool) string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(deviceHead(wide), "\t"))
	free := map[string]int{} // shares that no line tells of yet, by the device
	for _, d := range all {
		if d.ShareOf != "" && d.Free() {
			free[shareOf(d)]++
		}
	}
	for _, d := range all {
		row := deviceRow(d, wide)
		if d.ShareOf != "" && d.Free() && !wide {
			switch n := free[shareOf(d)]; {
			case n == 0:
				continue
			case n > 1:
				row[holderColumn] += fmt.Sprintf(" +%d", n-1)
			}
			free[shareOf(d)] = 0
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush() // into memory
	return b.String()
}

func shareOf(d report.Device) string { return d.Resource + "=" + d.ShareOf }

// healthColumn is where a device that has gone is said to be, holderColumn where it is said who has it.
const (
	healthColumn = 2
	holderColumn = 5
)

func deviceHead(wide bool) []string {
	head := []string{"RESOURCE", "DEVICE", "HEALTH", "NUMA", "SOURCE", "HOLDER"}
	if wide {
		head = append(head, "ALIASES", "NODES", "REASON")
	}
	return head
}

// maxDeviceName is how much of a device's name a table shows: with the usual widths of the others a line has 80 to 100 columns.
const maxDeviceName = 24

func deviceRow(d report.Device, wide bool) []string {
	name, source := d.Name, d.Source
	if oneline.Of(name) != name { // some plugins count in control characters
		name = strconv.Quote(name)
	}
	if !wide {
		name, source = cli.Shorten(name, maxDeviceName), filepath.Base(source)
	}
	row := []string{d.Resource, name, string(d.Health), numaNodes(d.NUMA), source, holderOf(d, wide)}
	if wide {
		row = append(row, cli.OrDash(strings.Join(d.Aliases, ",")), cli.OrDash(strings.Join(shownNodes(d), ",")), cli.OrDash(d.Reason))
	}
	for i := range row {
		row[i] = oneline.Of(row[i])
	}
	return row
}

// shownNodes are the nodes that are the device's own; of one that has none, such as /dev/fuse, those that it has.
func shownNodes(d report.Device) []string {
	if len(d.Nodes) > 0 {
		return d.Nodes
	}
	return d.SharedNodes
}

func numaNodes(nodes []int) string {
	var text []string
	for _, n := range nodes {
		text = append(text, strconv.Itoa(n))
	}
	return cli.OrDash(strings.Join(text, ","))
}

func holderOf(d report.Device, wide bool) string {
	switch {
	case len(d.Holders) > 1 && !wide:
		return fmt.Sprintf("%s +%d", d.Holders[0], len(d.Holders)-1)
	case len(d.Holders) > 0:
		var all []string
		for _, h := range d.Holders {
			all = append(all, h.String())
		}
		return strings.Join(all, ",")
	case d.Whole:
		return "-"
	case len(d.ExcludedBy) > 0 && wide:
		return "excluded by " + strings.Join(d.ExcludedBy, ",")
	case len(d.ExcludedBy) > 0:
		return "excluded"
	}
	return "free"
}

// deviceWatch prints what a watch tells.
type deviceWatch struct {
	out, err io.Writer
	format   string
	listed   []report.Device
	problems []report.Problem
	synced   bool
	widths   []int // of the table's columns, which only grow
}

func (w *deviceWatch) event(e report.Event) error {
	switch w.format {
	case cli.AsJSON:
		return cli.PrintCompact(w.out, e)
	case cli.AsYAML:
		if _, err := io.WriteString(w.out, "---\n"); err != nil {
			return err
		}
		return cli.PrintValue(w.out, w.format, e)
	}
	switch {
	case e.Type == report.Synced:
		w.synced = true
		return w.begin()
	case e.Device != nil && !w.synced:
		w.listed = append(w.listed, *e.Device)
	case e.Device != nil:
		return w.line(deviceRow(*e.Device, w.format == cli.AsWide), e.Type == report.Removed)
	case e.Problem != nil && !w.synced:
		w.problems = append(w.problems, *e.Problem)
	case e.Problem != nil:
		word := map[report.EventType]string{report.Arisen: "problem:", report.Solved: "solved:"}[e.Type]
		fmt.Fprintln(w.err, word, oneline.Of(e.Problem.String()))
	}
	return nil
}

// begin prints what there was at first, in columns that leave room for what may come.
func (w *deviceWatch) begin() error {
	wide := w.format == cli.AsWide
	w.grow(deviceHead(wide))
	w.grow([]string{"", "", string(report.Unhealthy)})
	for _, d := range w.listed {
		w.grow(deviceRow(d, wide))
	}
	if err := w.line(deviceHead(wide), false); err != nil {
		return err
	}
	for _, d := range w.listed {
		if err := w.line(deviceRow(d, wide), false); err != nil {
			return err
		}
	}
	for _, p := range w.problems {
		fmt.Fprintln(w.err, "problem:", oneline.Of(p.String()))
	}
	w.listed, w.problems = nil, nil
	return nil
}

func (w *deviceWatch) grow(row []string) {
	for i, cell := range row {
		if i == len(w.widths) {
			w.widths = append(w.widths, 0)
		}
		w.widths[i] = max(w.widths[i], len(cell))
	}
}

func (w *deviceWatch) line(row []string, gone bool) error {
	if gone {
		row[healthColumn] = "removed"
	}
	w.grow(row)
	var b strings.Builder
	for i, cell := range row {
		if i < len(row)-1 {
			cell = fmt.Sprintf("%-*s", w.widths[i]+2, cell)
		}
		b.WriteString(cell)
	}
	_, err := fmt.Fprintln(w.out, b.String())
	return err
}
