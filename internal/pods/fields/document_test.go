package fields

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// rewrite is how docs/reference/POD-FIELDS.md is made anew: go test ./internal/pods/fields -rewrite.
var rewrite = flag.Bool("rewrite", false, "write docs/reference/POD-FIELDS.md anew")

const (
	root     = "../../.."
	document = "docs/reference/POD-FIELDS.md"
	// refusedTest proves of each field that is refused that it is.
	refusedTest = "pods/fields:TestEveryRefusalIsNamed"
	preface     = `# Every field of a pod

What Monopod does with each field of core/v1's PodSpec and Container, and of the structs in them. The column "API server" is about Monopod's own. The column
"agent" is about Monopod's agent, which may also run in a cluster with another API server.

- **honoured**: Monopod does what the API documents. The fields of a struct have rows of their own.
- **kept**: the field is checked, stored and shown, but Monopod does not yet do all that the API documents; the row says what is missing.
- **refused**: an error names the field. The API server refuses a pod when it is created; the agent refuses to run one that another API server accepted.
- **left**: the field is not the agent's task, in any cluster.
- **never set**: the API itself forbids the field here; the error is the API's own.

"proven by" names the tests, as directory:TestName; the directory is below internal, or test/e2e. A test generates the table from the Go types, the table that both
roles use, and the list of proofs (` + "`go test ./internal/pods/fields -rewrite`" + `). It fails if a field has no row or no proof, or if a proof does not exist.

| struct | field | API server | agent | proven by |
|---|---|---|---|---|
`
)

// TestTheDocumentIsOfTheTypes holds docs/reference/POD-FIELDS.md against the types, the table and the proofs, and the proofs against the tests that there are.
func TestTheDocumentIsOfTheTypes(t *testing.T) {
	d := &documented{t: t, seen: map[reflect.Type]bool{}, used: map[string]bool{}, found: map[string]map[string]bool{}}
	d.text.WriteString(preface)
	d.write(reflect.TypeFor[v1.PodSpec]())
	for _, list := range [][]string{slices.Collect(maps.Keys(proofs)), slices.Collect(maps.Keys(notes))} {
		for _, name := range list {
			if !d.used[name] {
				t.Errorf("%s is about no field that there is", name)
			}
		}
	}
	file := filepath.Join(root, document)
	if *rewrite {
		if err := os.WriteFile(file, []byte(d.text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(is) != d.text.String() {
		t.Errorf("%s is out of date: go test ./internal/pods/fields -rewrite", document)
	}
}

type documented struct {
	t    *testing.T
	text strings.Builder
	seen map[reflect.Type]bool
	used map[string]bool
	// found are the tests of each directory.
	found map[string]map[string]bool
}

// write writes the rows of a struct, then those of the structs below it that somebody honours.
func (d *documented) write(typ reflect.Type) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	rows, known := table[typ]
	if !known || d.seen[typ] {
		return
	}
	d.seen[typ], d.used[typ.Name()] = true, true
	var below []reflect.Type
	for i := range typ.NumField() {
		f := typ.Field(i)
		name := typ.Name() + "." + f.Name
		d.used[name] = true
		row := rows[f.Name]
		shown, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if shown == "" {
			shown = "(" + f.Type.Name() + ")"
		}
		server, agent := say(name, row[Server]), say(name, row[Agent])
		fmt.Fprintf(&d.text, "| %s | %s | %s | %s | %s |\n", typ.Name(), shown, server, agent, d.proof(name, typ.Name(), row))
		if row[Server].Kind != refuses || row[Agent].Kind != refuses && row[Agent].Kind != leaves {
			below = append(below, f.Type)
		}
	}
	for _, t := range below {
		d.write(t)
	}
}

// say is what a role makes of a field, with the part of the note about it that is about that.
func say(name string, v verdict) string {
	if neverSet(name) {
		return "never set"
	}
	note := notes[name]
	left, unless, _ := strings.Cut(note, "; ")
	if !strings.HasPrefix(left, "left") {
		left, unless = "", note
	}
	switch {
	case v.Kind == leaves && left != "":
		return left
	case v.Kind == leaves:
		return "left"
	case v.Kind == refuses && v.Accepts != nil:
		return "refused " + unless
	case v.Kind == refuses:
		return "refused"
	case unless == "" || strings.HasPrefix(unless, "unless"):
		return "honoured"
	case strings.HasPrefix(unless, "kept"):
		return unless
	default:
		return "honoured, " + unless
	}
}

// neverSet says of a field of an ephemeral container that it is there for the type's sake only.
func neverSet(name string) bool {
	typ, f, _ := strings.Cut(name, ".")
	return typ == "ContainerResizePolicy" || typ == "EphemeralContainerCommon" && slices.Contains([]string{
		"Ports", "Resources", "ResizePolicy", "RestartPolicy", "RestartPolicyRules", "LivenessProbe", "ReadinessProbe", "StartupProbe", "Lifecycle"}, f)
}

// proof is what proves a row, as the document says it; a row without a proof is an error.
func (d *documented) proof(name, typ string, row row) string {
	var all []string
	if row[Server].Kind == refuses || row[Agent].Kind == refuses {
		all = append(all, refusedTest)
	}
	if row[Server].Kind != refuses || row[Agent].Kind == 0 {
		more := proofs[name]
		if more == "" {
			more = proofs[typ]
		}
		for _, p := range strings.Split(more, ", ") {
			if p != "" && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	for _, p := range all {
		d.check(name, p)
	}
	if len(all) == 0 {
		d.t.Errorf("%s: no test proves what is made of it: name one in proofs", name)
	}
	return strings.Join(all, ", ")
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// check finds a test.
func (d *documented) check(name, proof string) {
	dir, test, _ := strings.Cut(proof, ":")
	if !strings.HasPrefix(dir, "test/") {
		dir = "internal/" + dir
	}
	if d.found[dir] == nil {
		d.found[dir] = map[string]bool{}
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			d.t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				d.t.Fatal(err)
			}
			for _, m := range testFunc.FindAllSubmatch(source, -1) {
				d.found[dir][string(m[1])] = true
			}
		}
	}
	if !d.found[dir][test] {
		d.t.Errorf("%s: its proof %s is not there", name, proof)
	}
}

// TestEveryRefusalIsNamed sets each field of each struct that a role refuses, one at a time: it is refused by its name.
func TestEveryRefusalIsNamed(t *testing.T) {
	for typ, rows := range table {
		for name, row := range rows {
			for role := range Role(roles) {
				if row[role].Kind != refuses {
					continue
				}
				f, _ := typ.FieldByName(name)
				of := reflect.New(typ)
				set := something(f.Type)
				if accepts := row[role].Accepts; accepts != nil && accepts(set) {
					set = reflect.New(f.Type.Elem()) // a boolean of which true is the harmless value, or a struct of which none is set
					if accepts(set) {
						set.Elem().Field(0).Set(something(f.Type.Elem().Field(0).Type))
					}
				}
				of.Elem().FieldByName(name).Set(set)
				shown, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				got := byType[role].Refused(of.Interface(), field.NewPath("at"))
				if len(got) != 1 || got[0].Path.String() != "at."+shown {
					t.Errorf("role %d, %s.%s: %v, want at.%s refused", role, typ.Name(), name, got, shown)
				}
			}
		}
	}
}

// TestPagesAgree: no page of the documentation calls a field refused that is taken, nor one honoured that is not.
func TestPagesAgree(t *testing.T) {
	verdicts := map[string]string{}
	note := func(subject, name string, typ reflect.Type, f string) {
		verdicts[subject] = say(name, table[typ][f][Server])
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[v1.PodSpec](), reflect.TypeFor[v1.Container]()} {
		for i := range typ.NumField() {
			f := typ.Field(i)
			shown, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if strings.ToLower(shown) == shown {
				continue // a word of its own
			}
			note(shown, typ.Name()+"."+f.Name, typ, f.Name)
		}
	}
	for _, subject := range []string{"sidecars", "restartable init containers", "sidecar containers"} {
		note(subject, "Container.RestartPolicy", reflect.TypeFor[v1.Container](), "RestartPolicy")
	}
	note("ephemeral containers", "PodSpec.EphemeralContainers", reflect.TypeFor[v1.PodSpec](), "EphemeralContainers")
	claim := regexp.MustCompile("`?(" + strings.Join(slices.Collect(maps.Keys(verdicts)), "|") + ")`? (?:is|are) (refused|not honoured|not supported|honoured)\\b")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range claim.FindAllStringSubmatch(string(text), -1) {
			is := verdicts[m[1]]
			if honoured := m[2] == "honoured"; honoured != strings.HasPrefix(is, "honoured") || !honoured && !strings.HasPrefix(is, "refused") {
				t.Errorf("%s says that %s; the table says: %s", page, m[0], is)
			}
		}
	}
}
