package conformance

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const trustFile = "docs/reference/CRI-TRUST.md"

// direction says in which messages a field is, and whether it is made of further fields.
type direction struct{ asked, answered, message bool }

// directions finds them for every field that is reachable from the requests or the responses of CRI's services.
func directions() map[string]*direction {
	all := map[string]*direction{}
	var reach func(m protoreflect.MessageDescriptor, asked bool, seen map[protoreflect.FullName]bool)
	reach = func(m protoreflect.MessageDescriptor, asked bool, seen map[protoreflect.FullName]bool) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			name := string(m.Name()) + "." + string(f.Name())
			if all[name] == nil {
				all[name] = &direction{}
			}
			d := all[name]
			d.asked, d.answered = d.asked || asked, d.answered || !asked
			if sub := f.Message(); sub != nil && !f.IsMap() {
				d.message = true
				reach(sub, asked, seen)
			}
		}
	}
	services := (&cri.VersionRequest{}).ProtoReflect().Descriptor().ParentFile().Services()
	requests, responses := map[protoreflect.FullName]bool{}, map[protoreflect.FullName]bool{}
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for k := range methods.Len() {
			reach(methods.Get(k).Input(), true, requests)
			reach(methods.Get(k).Output(), false, responses)
		}
	}
	return all
}

// TestTrust holds the table of whose word each field is against CRI's messages, and each field that somebody else than the kubelet writes against a
// test that writes something hostile.
func TestTrust(t *testing.T) {
	tests := parseTests(t)
	all := directions()
	listed := map[string]row{}
	for _, r := range readTable(t, trustFile, 3) {
		if _, twice := listed[r.cells[0]]; twice {
			t.Errorf("%s:%d: %s is listed twice", trustFile, r.line, r.cells[0])
		}
		listed[r.cells[0]] = r
	}
	for _, f := range allFields(t) {
		r, ok := listed[f.name]
		if !ok {
			t.Errorf("%s is in no row of %s: say whose word it is (%s)", f.name, trustFile, strings.Join(possible(f.name, *all[f.name]), ", "))
			continue
		}
		delete(listed, f.name)
		if can := possible(f.name, *all[f.name]); !slices.Contains(can, r.cells[1]) {
			t.Errorf("%s:%d: %s cannot be %q, but one of %q", trustFile, r.line, f.name, r.cells[1], can)
		}
		if r.cells[1] == "untrusted" && len(r.proofs) == 0 {
			t.Errorf("%s:%d: %s: no test writes something hostile", trustFile, r.line, f.name)
		}
		mentioned := len(r.proofs) == 0
		for _, p := range r.proofs {
			m, err := tests.check(p, "Get"+f.goes, f.goes)
			if err != nil {
				t.Errorf("%s:%d: %s: %v", trustFile, r.line, f.name, err)
			}
			mentioned = mentioned || m
		}
		if !mentioned {
			t.Errorf("%s:%d: no file of %v mentions %s", trustFile, r.line, r.proofs, f.goes)
		}
	}
	for name, r := range listed {
		t.Errorf("%s:%d: CRI has no field %s", trustFile, r.line, name)
	}
}

// possible are the words that the table may have for a field.
func possible(name string, d direction) []string {
	message, field, _ := strings.Cut(name, ".")
	switch {
	case strings.HasPrefix(message, "Windows"), field == "windows":
		return []string{"not Linux"}
	case strings.HasPrefix(message, "Checkpoint"), strings.HasPrefix(message, "Restore"):
		return []string{"unserved"}
	case d.message:
		return []string{"parts"}
	case d.asked:
		return []string{"policy", "untrusted"}
	default:
		return []string{"told", "quoted"}
	}
}

// TestThreats holds the tables of published escapes and of hostile containers: each row names tests that are there, and each test of test/escape is
// in a row.
func TestThreats(t *testing.T) {
	const file = "docs/THREAT-MODEL.md"
	tests := parseTests(t)
	named := map[string]bool{}
	rows := readTable(t, file, 4)
	for _, r := range rows {
		if len(r.proofs) == 0 {
			t.Errorf("%s:%d: %s: no test holds it", file, r.line, r.cells[0])
		}
		for _, p := range r.proofs {
			if _, err := tests.check(p); err != nil {
				t.Errorf("%s:%d: %v", file, r.line, err)
			}
			named[strings.TrimPrefix(p, "test/escape:")] = true
		}
	}
	p := tests["test/escape"]
	if p == nil || len(rows) < 16 {
		t.Fatalf("%s: %d rows, tests of test/escape: %v", file, len(rows), p != nil)
	}
	for name := range p.funcs {
		if !named[name] && name != "TestMain" {
			t.Errorf("%s of test/escape is in no row of %s", name, file)
		}
	}
}
