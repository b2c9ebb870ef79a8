package conformance

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root       = "../../.."
	fieldsFile = "docs/reference/CRI-FIELDS.md"
	rulesFile  = "docs/reference/CRI-RULES.md"
)

// row is one line of a table: | a | b | c |, with the proofs of its last column.
type row struct {
	line   int
	cells  []string
	proofs []string
}

// readTable reads the rows of the Markdown tables of a file that have so many columns, but for their heads.
func readTable(t *testing.T, file string, columns int) []row {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	body := false
	number := 0
	for line := range strings.Lines(string(raw)) {
		number++
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			body = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.HasPrefix(cells[0], "---") {
			body = true
			continue
		}
		if !body {
			continue
		}
		if len(cells) != columns {
			t.Errorf("%s:%d: %d columns, want %d", file, number, len(cells), columns)
			continue
		}
		r := row{line: number, cells: cells}
		for p := range strings.SplitSeq(cells[columns-1], ",") {
			if p = strings.TrimSpace(p); p != "" {
				r.proofs = append(r.proofs, p)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// TestFields holds the table of fields against CRI's messages.
//
// What is done with a field is one of: "honoured"; "refused", by name and with an error; "not Linux"; "unset: why", of a field
// of an answer; "no effect: why", where CRI itself lets a field have none; "unserved", of an RPC that answers Unimplemented.
func TestFields(t *testing.T) {
	tests := parseTests(t)
	listed := map[string]row{}
	for _, r := range readTable(t, fieldsFile, 3) {
		if _, twice := listed[r.cells[0]]; twice {
			t.Errorf("%s:%d: %s is listed twice", fieldsFile, r.line, r.cells[0])
		}
		listed[r.cells[0]] = r
	}
	for _, f := range allFields(t) {
		r, ok := listed[f.name]
		if !ok {
			t.Errorf("%s is in no row of %s: say what is done with it, and which test proves it", f.name, fieldsFile)
			continue
		}
		delete(listed, f.name)
		how, why, _ := strings.Cut(r.cells[1], ": ")
		proven := false
		switch how {
		case "honoured", "refused", "unserved":
			proven = true
		case "unset", "no effect":
			if why == "" {
				t.Errorf("%s:%d: %s: say why", fieldsFile, r.line, f.name)
			}
		case "not Linux":
		default:
			t.Errorf("%s:%d: %s: %q says nothing that is known", fieldsFile, r.line, f.name, r.cells[1])
		}
		if proven && len(r.proofs) == 0 {
			t.Errorf("%s:%d: %s: no test proves it", fieldsFile, r.line, f.name)
		}
		mentioned := len(r.proofs) == 0 || how == "unserved"
		for _, p := range r.proofs {
			m, err := tests.check(p, "Get"+f.goes, f.goes)
			if err != nil {
				t.Errorf("%s:%d: %s: %v", fieldsFile, r.line, f.name, err)
			}
			mentioned = mentioned || m
		}
		if !mentioned {
			t.Errorf("%s:%d: no file of %v mentions %s", fieldsFile, r.line, r.proofs, f.goes)
		}
	}
	for name, r := range listed {
		t.Errorf("%s:%d: CRI has no field %s", fieldsFile, r.line, name)
	}
}

// TestRules holds the table of rules against the comments of CRI's proto: each service, message, field and enumeration value
// whose comment binds somebody has a row, with the number of its sentences that do.
func TestRules(t *testing.T) {
	tests := parseTests(t)
	rules := allRules(t)
	for _, r := range readTable(t, rulesFile, 4) {
		name, text := r.cells[0], r.cells[2]
		for _, p := range r.proofs {
			if _, err := tests.check(p); err != nil {
				t.Errorf("%s:%d: %s: %v", rulesFile, r.line, name, err)
			}
		}
		if r.cells[1] == "-" { // a rule in other words
			if len(r.proofs) == 0 {
				t.Errorf("%s:%d: %s: no test proves it", rulesFile, r.line, name)
			}
			continue
		}
		want, ok := rules[name]
		if !ok {
			t.Errorf("%s:%d: the comment of %s has no rule, or is listed twice", rulesFile, r.line, name)
			continue
		}
		delete(rules, name)
		if r.cells[1] != strconv.Itoa(want) {
			t.Errorf("%s:%d: %s has %d binding sentences, the table knows %s", rulesFile, r.line, name, want, r.cells[1])
		}
		// What binds the client, or waits with an RPC that is not served, is said in the text.
		exempt := strings.HasPrefix(text, "unserved: ") || strings.HasPrefix(text, "not Linux") || strings.HasPrefix(text, "no rule: ")
		if len(r.proofs) == 0 && !exempt {
			t.Errorf("%s:%d: %s: no test proves it", rulesFile, r.line, name)
		}
	}
	for name, n := range rules {
		t.Errorf("%s binds in %d sentences and is in no row of %s", name, n, rulesFile)
	}
}

// tests are the test files of the packages below internal.
type tests map[string]*testPackage

type testPackage struct {
	funcs  map[string]*testFile
	shared []*testFile // node_test.go
}

// testFile is what is looked for in a file: its identifiers and its strings.
type testFile struct {
	name    string
	idents  map[string]bool
	strings map[string]bool
}

// parseTests reads the test files of all packages of the module that proofs may be in.
func parseTests(t *testing.T) tests {
	t.Helper()
	all := tests{}
	for _, base := range []string{"internal", "test"} {
		err := filepath.WalkDir(filepath.Join(root, base), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			if all[rel] == nil {
				all[rel] = &testPackage{funcs: map[string]*testFile{}}
			}
			all[rel].add(filepath.Base(path), file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (p *testPackage) add(name string, file *ast.File) {
	f := newTestFile(name, file)
	if name == "node_test.go" {
		p.shared = append(p.shared, f)
	}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			p.funcs[fn.Name.Name] = f
		}
	}
}

// newTestFile looks for identifiers and strings in a file, or in a part of one.
func newTestFile(name string, in ast.Node) *testFile {
	f := &testFile{name: name, idents: map[string]bool{}, strings: map[string]bool{}}
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			f.idents[n.Name] = true
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				f.strings[s] = true
			}
		}
		return true
	})
	return f
}

// check finds a proof: TestName or TestName/case of internal/runtime, or directory:TestName/case of another package below
// internal. The case is a string of the test's file. It says whether one of the names occurs in the file, or in what all
// tests of its package share.
func (all tests) check(proof string, names ...string) (mentioned bool, err error) {
	dir, test, other := strings.Cut(proof, ":")
	if !other {
		dir, test = "runtime", proof
	}
	if !strings.HasPrefix(dir, "test/") {
		dir = "internal/" + dir
	}
	name, subtest, _ := strings.Cut(test, "/")
	p := all[dir]
	if p == nil {
		return false, fmt.Errorf("%s: there is no test in %s", proof, dir)
	}
	file := p.funcs[name]
	if file == nil {
		return false, fmt.Errorf("%s: there is no %s in %s", proof, name, dir)
	}
	if subtest != "" && !file.strings[subtest] {
		return false, fmt.Errorf("%s: %s of %s has no case %q", proof, file.name, dir, subtest)
	}
	for _, f := range append(p.shared, file) {
		mentioned = mentioned || slices.ContainsFunc(names, func(n string) bool { return f.idents[n] })
	}
	return mentioned, nil
}
