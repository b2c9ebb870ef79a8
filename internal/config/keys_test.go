package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"monopod.dev/monopod/api/config/v1alpha1"
)

var rewrite = flag.Bool("rewrite", false, "write the texts that come from the rows: docs/CONFIGURATION.md and the comments of the configuration's types")

// TestEveryKeyIsARow: a key of the file has one row, which names it, and its flag sets that key alone.
func TestEveryKeyIsARow(t *testing.T) {
	var rows []string
	for _, s := range Settings() {
		rows = append(rows, s.Name)
	}
	keys := leaves("", reflect.TypeFor[v1alpha1.NodeConfiguration]())
	for _, key := range keys {
		if key != "apiVersion" && key != "kind" && !slices.Contains(rows, key) {
			t.Errorf("the key %s has no row in keys_*.go", key)
		}
	}
	for _, row := range rows {
		if !slices.Contains(keys, row) {
			t.Errorf("the row %s is of no key: its field is missing in api/config/v1alpha1", row)
		}
	}
	if len(rows)+2 != len(keys) {
		t.Errorf("%d rows for %d keys: one has two", len(rows), len(keys)-2)
	}
	if t.Failed() {
		return
	}
	flags := map[string]string{}
	for _, s := range Settings() {
		if s.Words == "" || s.Group == "" || s.Roles == 0 || (s.Flag == "") != (s.Value == "") {
			t.Errorf("the row of %s is incomplete: %+v", s.Name, s)
		}
		if s.Flag == "" {
			continue
		}
		if other := flags[s.Flag]; other != "" {
			t.Errorf("--%s is of %s and of %s", s.Flag, other, s.Name)
		}
		flags[s.Flag] = s.Name
		value := examples[s.Value]
		if value == "" {
			value = "x"
		}
		var c v1alpha1.NodeConfiguration
		if err := s.Set(&c, value); err != nil {
			t.Errorf("--%s %s: %v", s.Flag, value, err)
			continue
		}
		if got := filled("", reflect.ValueOf(c)); !slices.Equal(got, []string{s.Name}) {
			t.Errorf("--%s sets %v, want %s", s.Flag, got, s.Name)
		}
		// What is wrong with a flag's text says what would be right.
		if _, has := examples[s.Value]; has {
			if err := s.Set(&c, "no:thing"); err == nil || !strings.Contains(err.Error(), "no:thing") || !strings.Contains(err.Error(), "use ") {
				t.Errorf("--%s no:thing: %v", s.Flag, err)
			}
		}
	}
}

// leaf says whether fields of a type are the value of one key.
func leaf(t reflect.Type) bool {
	return t.Kind() != reflect.Struct || t == reflect.TypeFor[v1alpha1.Duration]()
}

func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// leaves are all keys of a type.
func leaves(prefix string, t reflect.Type) (keys []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name := prefix + keyOf(f); leaf(f.Type) {
			keys = append(keys, name)
		} else {
			keys = append(keys, leaves(name+".", f.Type)...)
		}
	}
	return keys
}

// filled are the keys that are set.
func filled(prefix string, v reflect.Value) (keys []string) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, value := prefix+keyOf(f), v.FieldByIndex(f.Index)
		switch {
		case !leaf(f.Type):
			keys = append(keys, filled(name+".", value)...)
		case !value.IsZero():
			keys = append(keys, name)
		}
	}
	return keys
}

// TestDefaultsAreThoseOfTheRows: a default is read as a flag's value would be, and obeys the rule; the rest stays empty.
func TestDefaultsAreThoseOfTheRows(t *testing.T) {
	for _, ephemeral := range []bool{false, true} {
		var c v1alpha1.NodeConfiguration
		if ephemeral {
			DefaultEphemeral(&c)
		}
		Default(&c, "h")
		for _, s := range Settings() {
			want := s.Default
			if ephemeral && s.Ephemeral != "" {
				want = s.Ephemeral
			}
			var alone v1alpha1.NodeConfiguration
			alone.RunDir = c.RunDir
			s.fill(&alone, want)
			if s.Name == "nodeName" {
				alone.NodeName = "h"
			}
			got, _ := json.Marshal(s.field(&c).Interface())
			if want, _ := json.Marshal(s.field(&alone).Interface()); !bytes.Equal(got, want) {
				t.Errorf("%s, ephemeral %t: %s, want %s", s.Name, ephemeral, got, want)
			}
		}
	}
}

// TestARuleIsHeldAgainstEachOfAList, and a number against it as soon as a flag has it: 0 would be taken for none later.
func TestARuleIsHeldAgainst(t *testing.T) {
	var c v1alpha1.NodeConfiguration
	Default(&c, "h")
	for _, s := range Settings() {
		switch s.Flag {
		case "max-pods", "log-max-files":
			if err := s.Set(&c, "0"); err == nil || !strings.Contains(err.Error(), "at least") {
				t.Errorf("--%s 0: %v", s.Flag, err)
			}
		case "api-port":
			if err := s.Set(&c, "70000"); err == nil || !strings.Contains(err.Error(), "65535") {
				t.Errorf("--%s 70000: %v", s.Flag, err)
			}
		case "cni-bin-dirs":
			if err := s.Set(&c, "/a,b"); err != nil { // with the whole configuration, as the file's
				t.Error(err)
			}
		}
	}
	if err := Validate(&c); err == nil || !strings.Contains(err.Error(), `network.cni.binDirs is "b"; it must be an absolute path`) {
		t.Error(err)
	}
}

const (
	pageFile  = "../../docs/CONFIGURATION.md"
	typesFile = "../../api/config/v1alpha1/types.go"
)

// TestTextsAreThoseOfTheRows: the page and the comments say what the rows say. With -rewrite they are written.
func TestTextsAreThoseOfTheRows(t *testing.T) {
	for file, derive := range map[string]func([]byte) ([]byte, error){pageFile: page, typesFile: comments} {
		is, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := derive(is)
		switch {
		case err != nil:
			t.Fatal(err)
		case bytes.Equal(is, want):
		case *rewrite:
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s does not say what the rows say; write it anew: go test ./internal/config -run %s -rewrite", strings.TrimPrefix(file, "../../"), t.Name())
		}
	}
}

// The part of the page that comes from the rows is between these.
const pageBegin, pageEnd = "## Settings\n", "## Exit codes\n"

// page puts the tables of all settings into the page.
func page(is []byte) ([]byte, error) {
	before, rest, found := strings.Cut(string(is), pageBegin)
	_, after, foundEnd := strings.Cut(rest, pageEnd)
	if !found || !foundEnd {
		return nil, fmt.Errorf("%s lacks the line %q or %q", pageFile, pageBegin, pageEnd)
	}
	var b strings.Builder
	b.WriteString(before + pageBegin)
	for _, g := range Groups() {
		fmt.Fprintf(&b, "\n### %s\n\n| key | flag | default | what it is |\n|---|---|---|---|\n", g)
		for _, s := range Settings() {
			if s.Group != g {
				continue
			}
			flag, what := "", s.Words
			if s.Flag != "" {
				flag = "--" + s.Flag
			}
			if s.More != "" {
				what += ". " + s.More
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.Name, flag, strings.ReplaceAll(s.Defaults(), ",/", ", /"), strings.TrimSuffix(what, "."))
		}
	}
	b.WriteString("\n" + pageEnd + after)
	return []byte(b.String()), nil
}

// comments puts what the rows say above the fields of the types.
func comments(is []byte) ([]byte, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, typesFile, is, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	types := map[string]*ast.StructType{}
	ast.Inspect(tree, func(n ast.Node) bool {
		if spec, is := n.(*ast.TypeSpec); is {
			if s, is := spec.Type.(*ast.StructType); is {
				types[spec.Name.Name] = s
			}
		}
		return true
	})
	rows := map[string]*Setting{}
	for _, s := range Settings() {
		rows[s.Name] = &s
	}
	var edits []edit
	at := func(p token.Pos) int { return files.Position(p).Offset }
	var walk func(prefix, name string)
	walk = func(prefix, name string) {
		for _, f := range types[name].Fields.List {
			tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
			key := prefix + keyOf(reflect.StructField{Tag: tag})
			s := rows[key]
			if s == nil {
				if ident, is := f.Type.(*ast.Ident); is && types[ident.Name] != nil {
					walk(key+".", ident.Name)
				}
				continue
			}
			e := edit{begin: at(f.Pos()), end: at(f.Pos()), text: comment(f.Names[0].Name, s) + "\t"}
			if f.Doc != nil {
				e.begin, e.text = at(f.Doc.Pos()), comment(f.Names[0].Name, s)+"\t"
			}
			edits = append(edits, e)
		}
	}
	walk("", "NodeConfiguration")
	slices.SortFunc(edits, func(a, b edit) int { return b.begin - a.begin })
	for _, e := range edits {
		is = slices.Concat(is[:e.begin], []byte(e.text), is[e.end:])
	}
	return format.Source(is)
}

// edit puts a text into the place of another.
type edit struct {
	begin, end int
	text       string
}

var link = regexp.MustCompile(`\[[A-Z-]+\.md\]\(([a-zA-Z/-]+\.md)[^)]*\)`)

// comment is what stands above a field, without the indentation of its first line.
func comment(field string, s *Setting) string {
	text := field + ": " + s.Words + "."
	if s.More != "" {
		text += " " + strings.TrimSuffix(s.More, ".") + "."
	}
	if d := s.Defaults(); d != "" {
		text += " Default: " + d + "."
	}
	if s.Flag != "" {
		text += " Flag: --" + s.Flag + "."
	}
	text = strings.ReplaceAll(link.ReplaceAllString(text, "docs/$1"), "`", "'")
	const width = 140
	var lines []string
	for word := range strings.FieldsSeq(text) {
		if n := len(lines); n > 0 && len(lines[n-1])+1+len(word) <= width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return "// " + strings.Join(lines, "\n\t// ") + "\n"
}

// TestHelpNamesFlags: where the words of a row name another key, help names its flag, and no mark of code is left, which would name the flag's value.
func TestHelpNamesFlags(t *testing.T) {
	for _, s := range Settings() {
		usage := s.Usage()
		if strings.Contains(usage, "`") {
			t.Errorf("--%s: %q has a mark of code", s.Flag, usage)
		}
		for _, other := range Settings() {
			if other.Flag != "" && strings.Contains(other.Name, ".") && strings.Contains(usage, other.Name) {
				t.Errorf("--%s: %q names a key, not --%s", s.Flag, usage, other.Flag)
			}
		}
		if s.Flag == "shutdown-grace-period-critical-pods" && !strings.HasPrefix(usage, "part of --shutdown-grace-period, ") {
			t.Errorf("--%s: %q", s.Flag, usage)
		}
	}
}
