package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// tableWidth is what a terminal shows on a line; names are the first column after the status.
const (
	tableWidth = 80
	nameColumn = 6
)

// WriteTable prints the results for people, in lines of at most 80 columns (a word that is longer stays whole). A remedy
// stands under what was found.
func WriteTable(w io.Writer, results []Result) error {
	name := 0
	for _, r := range results {
		name = max(name, utf8.RuneCountInString(r.Name))
	}
	indent := nameColumn + name + 2
	var out strings.Builder
	for _, r := range results {
		prefix := fmt.Sprintf("%-*s%-*s  ", nameColumn, label(r.Status), name, r.Name)
		out.WriteString(wrap(prefix, indent, r.Found))
		if r.Remedy != "" {
			out.WriteString(wrap(strings.Repeat(" ", indent)+"-> ", indent+3, r.Remedy))
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func label(s Status) string {
	if s == OK {
		return "ok"
	}
	return strings.ToUpper(string(s))
}

// wrap breaks a text at blanks into lines of the table's width; the first has the prefix before it, the others begin at the
// indent.
func wrap(prefix string, indent int, text string) string {
	var out strings.Builder
	line, empty := prefix, true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > tableWidth {
			out.WriteString(line + "\n")
			line, empty = strings.Repeat(" ", indent), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	out.WriteString(strings.TrimRight(line, " ") + "\n")
	return out.String()
}

// WriteJSON prints the results for programs: an array of objects with name, status, found and remedy.
func WriteJSON(w io.Writer, results []Result) error {
	if results == nil {
		results = []Result{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(results)
}
