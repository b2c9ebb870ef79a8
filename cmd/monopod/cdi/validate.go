package cdi

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/cdispec/lint"
	"monopod.dev/monopod/internal/kit/oneline"
)

// cdiVerdict is what `monopod cdi validate` tells of a file.
type cdiVerdict struct {
	File  string `json:"file"`
	Valid bool   `json:"valid"`
	lint.Result
}

func newValidateCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Show every error of a spec, with its line",
		Long: `Checks spec files, JSON or YAML, in any directory, as a node of this version reads them. It prints all faults of each
file at once:

  FILE:LINE:COLUMN: error: WHERE: MESSAGE      no node uses the file
  FILE:LINE:COLUMN: warning: WHERE: MESSAGE    a node uses it, but something that it names does not exist on this
                                               host, or other runtimes refuse it
  FILE: ok: ...                                no fault; with the kind and the number of devices

COLUMN is left out if it is not known, LINE too if the fault concerns the whole file.

Exit codes: 0 if all files are valid, with or without warnings; 1 if one is invalid or cannot be read; 2 for an invalid
command line.`,
		Example: `  monopod cdi validate /etc/cdi/*.yaml
  monopod cdi validate -o json gpu.json | jq '.[].faults[]'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &cli.UsageError{Err: fmt.Errorf("name at least one file; see '%s --help'", cmd.CommandPath())}
			}
			return nil
		},
	}
	cli.FormatFlag(cmd, &format, cli.AsText, cli.AsJSON, cli.AsYAML)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		all := []cdiVerdict{}
		bad := 0
		for _, file := range files {
			v := validateCDI(file)
			if !v.Valid {
				bad++
			}
			all = append(all, v)
		}
		write := func(w io.Writer) error { return printVerdicts(w, all) }
		if format != cli.AsText {
			write = func(w io.Writer) error { return cli.PrintValue(w, format, all) }
		}
		if err := write(cmd.OutOrStdout()); err != nil {
			return err
		}
		if bad > 0 {
			return fmt.Errorf("%d of %s not valid", bad, cli.Plural(len(files), "file is", "files are"))
		}
		return nil
	}
	return cmd
}

// maxSpecFile bounds what is read of a file, as nodes do.
const maxSpecFile = 16 << 20

func validateCDI(file string) cdiVerdict {
	data, err := readBounded(file)
	if err != nil {
		return cdiVerdict{File: file, Result: lint.Result{Devices: []string{}, Faults: []lint.Fault{{Message: err.Error()}}}}
	}
	r := lint.Check(file, data, cdispec.ThisHost())
	return cdiVerdict{File: file, Valid: r.OK(), Result: r}
}

func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		if pe := (*os.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err // the line begins with the file
		}
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSpecFile+1))
	switch {
	case err != nil:
		if pe := (*os.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("it cannot be read: %w", err)
	case len(data) > maxSpecFile:
		return nil, fmt.Errorf("it has more than the %d bytes that a spec may have", maxSpecFile)
	}
	return data, nil
}

func printVerdicts(w io.Writer, all []cdiVerdict) error {
	var b strings.Builder
	for _, v := range all {
		for _, f := range v.Faults {
			at := v.File
			if f.Line > 0 {
				at += fmt.Sprintf(":%d", f.Line)
				if f.Column > 0 {
					at += fmt.Sprintf(":%d", f.Column)
				}
			}
			word := "error"
			if f.Warning {
				word = "warning"
			}
			text := f.Message
			if f.Where != "" {
				text = f.Where + ": " + text
			}
			fmt.Fprintf(&b, "%s: %s: %s\n", oneline.Of(at), word, oneline.Of(text))
		}
		if v.Valid {
			fmt.Fprintf(&b, "%s: ok: kind %s, %s\n", oneline.Of(v.File), v.Kind, cli.Count(len(v.Devices), "device"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
