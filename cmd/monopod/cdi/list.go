package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/kit/oneline"
)

// cdiList is what `monopod cdi list` tells.
type cdiList struct {
	Folders  []string     `json:"folders"`
	Devices  []cdiDevice  `json:"devices"`
	Problems []cdiProblem `json:"problems"`
}

// cdiDevice is a device that can be injected by its name.
type cdiDevice struct {
	Name string `json:"name"` // vendor.com/class=device
	File string `json:"file"`
	// Overrides are the files of earlier folders that define it, too.
	Overrides []string `json:"overrides,omitempty"`
	// Edits count what a container gets, those of the whole file included.
	Edits cdiCounts `json:"edits"`
	// Missing are the ways in which the host is not as the spec says; none: the device can be injected.
	Missing []string `json:"missing,omitempty"`
}

// cdiCounts are numbers of edits.
type cdiCounts struct {
	Env         int `json:"env,omitempty"`
	DeviceNodes int `json:"deviceNodes,omitempty"`
	NetDevices  int `json:"netDevices,omitempty"`
	Mounts      int `json:"mounts,omitempty"`
	Hooks       int `json:"hooks,omitempty"`
	Others      int `json:"others,omitempty"` // intelRdt, additionalGids
}

// cdiProblem is a file or folder that cannot be used, or files that contradict each other.
type cdiProblem struct {
	Paths   []string `json:"paths"`
	Device  string   `json:"device,omitempty"`
	Message string   `json:"message"`
}

func newListCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the devices of all specs",
		Long: `Lists the devices that the specs of the host define, each with the file that is used: if several directories define a
device, the later one takes precedence.

EDITS shows what a container gets with the device, including the file's edits for all its devices. HOST is "ok", or
says that something that the spec names does not exist, or is something else: then a container with the device would
not start. -o wide says what it is, and which files are overridden.

Files that cannot be used, such as an invalid one, or two files of one directory that define the same device, are
reported on standard error after the list. 'monopod cdi validate FILE' shows all faults of a file, with lines.

Exit codes: 0 if the list was printed, 2 for an invalid command line or configuration.`,
		Example: `  monopod cdi list
  monopod cdi list --spec-dir ./specs -o wide
  monopod cdi list -o json | jq -r '.devices[].name'`,
		Args: cli.NoArgs,
	}
	load := specFolders(cmd)
	cli.FormatFlag(cmd, &format, cli.AsTable, cli.AsWide, cli.AsJSON, cli.AsYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := load()
		if err != nil {
			return err
		}
		list := listCDI(set, cdispec.ThisHost())
		if format == cli.AsJSON || format == cli.AsYAML {
			return cli.PrintValue(cmd.OutOrStdout(), format, list)
		}
		if _, err := fmt.Fprint(cmd.OutOrStdout(), cdiTable(list.Devices, format == cli.AsWide)); err != nil {
			return err
		}
		printFaults(cmd, set.Faults)
		return nil
	}
	return cmd
}

func listCDI(set *cdispec.Set, host cdispec.Host) cdiList {
	l := cdiList{Folders: set.Dirs, Devices: []cdiDevice{}, Problems: []cdiProblem{}}
	for _, name := range sortedNames(set) {
		d := set.Devices[name]
		l.Devices = append(l.Devices, cdiDevice{Name: name, File: d.File.Path, Overrides: overridden(set, d), Edits: countEdits(&d.File.Spec.ContainerEdits, d.Edits), Missing: missing(host, d)})
	}
	for _, f := range set.Faults {
		l.Problems = append(l.Problems, cdiProblem{f.Paths, f.Device, f.Message})
	}
	return l
}

// sortedNames are the names of the devices by kind, and then by number where they have one.
func sortedNames(set *cdispec.Set) []string {
	names := make([]string, 0, len(set.Devices))
	for name := range set.Devices {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		ka, na, _ := strings.Cut(a, "=")
		kb, nb, _ := strings.Cut(b, "=")
		return cmp.Or(cmp.Compare(ka, kb), naturally(na, nb))
	})
	return names
}

// naturally compares texts as people do: gpu2 comes before gpu10.
func naturally(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da == "" || db == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		na, nb := strings.TrimLeft(da, "0"), strings.TrimLeft(db, "0")
		if c := cmp.Or(cmp.Compare(len(na), len(nb)), cmp.Compare(na, nb), cmp.Compare(len(da), len(db))); c != 0 {
			return c
		}
		a, b = a[len(da):], b[len(db):]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }

// overridden are the other files that define a device.
func overridden(set *cdispec.Set, d *cdispec.Device) (files []string) {
	for _, f := range set.Files {
		if f != d.File && slices.ContainsFunc(f.Spec.Devices, func(o specs.Device) bool { return f.Spec.Kind+"="+o.Name == d.Name }) {
			files = append(files, f.Path)
		}
	}
	return files
}

func countEdits(all ...*specs.ContainerEdits) (n cdiCounts) {
	for _, e := range all {
		n.Env += len(e.Env)
		n.DeviceNodes += len(e.DeviceNodes)
		n.NetDevices += len(e.NetDevices)
		n.Mounts += len(e.Mounts)
		n.Hooks += len(e.Hooks)
		n.Others += len(e.AdditionalGIDs)
		if e.IntelRdt != nil {
			n.Others++
		}
	}
	return n
}

// String tells those that there are.
func (n cdiCounts) String() string {
	var parts []string
	for _, c := range []struct {
		n         int
		one, many string
	}{{n.DeviceNodes, "node", "nodes"}, {n.NetDevices, "interface", "interfaces"}, {n.Mounts, "mount", "mounts"}, {n.Env, "env", "env"}, {n.Hooks, "hook", "hooks"}, {n.Others, "other", "others"}} {
		if c.n > 0 {
			parts = append(parts, cli.Plural(c.n, c.one, c.many))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// missing are the ways in which the host is not as a device's spec says.
func missing(host cdispec.Host, d *cdispec.Device) (faults []string) {
	drift := (*cdispec.DriftError)(nil)
	if errors.As(host.Check(d, false), &drift) {
		for _, f := range drift.Faults {
			faults = append(faults, f.Path+" "+f.Detail)
		}
	}
	return faults
}

func cdiTable(all []cdiDevice, wide bool) string {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	head := "NAME\tFILE\tEDITS\tHOST"
	if wide {
		head += "\tOVERRIDES"
	}
	fmt.Fprintln(tw, head)
	for _, d := range all {
		file, host := filepath.Base(d.File), "ok"
		if n := len(d.Missing); n > 0 {
			host = fmt.Sprintf("%d missing", n)
		}
		if wide {
			file = d.File
			if len(d.Missing) > 0 {
				host = strings.Join(d.Missing, "; ")
			}
		}
		row := []string{d.Name, file, d.Edits.String(), host}
		if wide {
			row = append(row, cli.OrDash(strings.Join(d.Overrides, ",")))
		}
		for i := range row {
			row[i] = oneline.Of(row[i])
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush() // into memory
	return b.String()
}
