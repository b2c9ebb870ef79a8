package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const registriesFile = "docs/reference/REGISTRIES.md"

// TestRegistries holds the tables of what registries do against the tests of package image, and of its registry: each row is proven by tests and cases
// that are there, against the kind of registry that it names, and each test of registries is in a row.
func TestRegistries(t *testing.T) {
	tests := imageTests(t)
	proven := map[string]bool{}
	rows := readTable(t, registriesFile, 4)
	if len(rows) < 60 {
		t.Errorf("%s: only %d rows were found", registriesFile, len(rows))
	}
	for _, r := range rows {
		if r.cells[1] == "" || len(r.proofs) == 0 {
			t.Errorf("%s:%d: say what is done, and which test proves it", registriesFile, r.line)
		}
		var kinds []string
		for _, p := range r.proofs {
			name, subtest, _ := strings.Cut(p, "/")
			test := tests[name]
			if test == nil {
				t.Errorf("%s:%d: there is no %s in internal/image", registriesFile, r.line, name)
				continue
			}
			if subtest != "" && !test.strings[subtest] {
				t.Errorf("%s:%d: %s has no case %q", registriesFile, r.line, name, subtest)
			}
			proven[name] = true
			kinds = append(kinds, test.kinds()...)
		}
		want := map[string][]string{"real": {"real"}, "in-process": {"in-process"}, "both": {"real", "in-process"}}[r.cells[2]]
		if want == nil {
			t.Errorf("%s:%d: %q is no kind of registry", registriesFile, r.line, r.cells[2])
		}
		for _, k := range want {
			if !slices.Contains(kinds, k) {
				t.Errorf("%s:%d: no test of %v is of a registry that is %s", registriesFile, r.line, r.proofs, k)
			}
		}
	}
	for name, test := range tests {
		if strings.HasPrefix(test.file, "registry_") && !proven[name] {
			t.Errorf("%s of internal/image/%s is in no row of %s", name, test.file, registriesFile)
		}
	}
}

// imageTest is one test function, with the identifiers and strings within it.
type imageTest struct {
	file            string
	idents, strings map[string]bool
}

// kinds are the registries that a test uses: the real one is configured, the other one is of package test/registry.
func (i *imageTest) kinds() (kinds []string) {
	if i.idents["RegistryConfig"] {
		kinds = append(kinds, "real")
	}
	// Not the authorities and the token servers of that package, which serve the real one too.
	if i.idents["NewTLS"] || i.idents["guarded"] || i.idents["Misbehave"] || i.idents["Guard"] || i.idents["registry"] && !i.idents["RegistryConfig"] || strings.HasPrefix(i.file, "retry_") {
		kinds = append(kinds, "in-process")
	}
	return kinds
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func imageTests(t *testing.T) map[string]*imageTest {
	t.Helper()
	all := map[string]*imageTest{}
	for _, path := range slices.Concat(glob(t, "internal/image/*_test.go"), glob(t, "internal/image/registry/*_test.go")) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			f := newTestFile(filepath.Base(path), fn)
			all[fn.Name.Name] = &imageTest{file: f.name, idents: f.idents, strings: f.strings}
		}
	}
	return all
}
