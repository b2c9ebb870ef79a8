package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
)

// criVersion is the version of CRI that the runtime serves and the agent speaks.
const criVersion = "v1"

// builtWith is what `monopod version` tells of this binary.
type builtWith struct {
	// Version is the release, or what `git describe` says of the commit.
	Version string `json:"version"`
	// Revision and Time are the commit and its time, where Go was built from a clone; Modified says that the clone had changes.
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Kubernetes is the version whose API types are compiled in, CRI the version of the Container Runtime Interface.
	Kubernetes string `json:"kubernetes"`
	CRI        string `json:"cri"`
}

func newVersionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this binary",
		Long: `Shows the version of this binary, the Go release that built it, and the versions of Kubernetes and CRI that it
implements. It asks no running node: 'monopod status' shows the version of a running node.`,
		Example: `  monopod version
  monopod version -o json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			v := versionOf(version, info)
			if format != cli.AsTable {
				return cli.PrintValue(cmd.OutOrStdout(), format, v)
			}
			return v.print(cmd.OutOrStdout())
		},
	}
	cli.FormatFlag(cmd, &format, cli.AsTable, cli.AsJSON, cli.AsYAML)
	return cmd
}

// versionOf says what a build is; info may be nil.
func versionOf(version string, info *debug.BuildInfo) builtWith {
	v := builtWith{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kubernetes: "unknown", CRI: criVersion}
	if info == nil {
		return v
	}
	for _, m := range info.Deps {
		// The libraries' minor version is that of Kubernetes: k8s.io/api v0.37.2 has the types of 1.37.2.
		if rest, ok := strings.CutPrefix(m.Version, "v0."); ok && m.Path == "k8s.io/api" {
			v.Kubernetes = "v1." + rest
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v builtWith) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := [][2]string{{"Monopod", v.Version}}
	if v.Revision != "" {
		commit := v.Revision
		if v.Modified {
			commit += " (modified)"
		}
		rows = append(rows, [2]string{"Commit", commit}, [2]string{"Committed", v.Time})
	}
	rows = append(rows, [2]string{"Go", v.Go}, [2]string{"Platform", v.Platform}, [2]string{"Kubernetes", v.Kubernetes}, [2]string{"CRI", v.CRI})
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\n", r[0], r[1])
	}
	return t.Flush()
}
