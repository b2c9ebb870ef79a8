package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The values of -o of commands that have all of them.
const (
	AsTable = "table"
	AsText  = "text"
	AsWide  = "wide"
	AsJSON  = "json"
	AsYAML  = "yaml"
)

// FormatFlag gives a command -o; the first of the formats is the default.
func FormatFlag(cmd *cobra.Command, format *string, formats ...string) {
	last := len(formats) - 1
	cmd.Flags().StringVarP(format, "output", "o", formats[0], "output `FORMAT`: "+strings.Join(formats[:last], ", ")+" or "+formats[last])
	completeFormats(cmd, formats...)
	pre := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, *format) {
			return &UsageError{Err: fmt.Errorf("--output is %q: use %s or %s", *format, strings.Join(formats[:last], ", "), formats[last])}
		}
		if pre != nil {
			return pre(cmd, args)
		}
		return nil
	}
}

// PrintValue writes a value as JSON or YAML.
func PrintValue(w io.Writer, format string, v any) error {
	if format == AsJSON {
		return PrintJSON(w, v)
	}
	raw, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(raw)
	return err
}

// PrintCompact writes a value as one line of JSON.
func PrintCompact(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

// PrintJSON writes a value as JSON.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
