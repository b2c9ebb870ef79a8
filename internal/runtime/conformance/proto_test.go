package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// field is one field of a CRI message.
type field struct {
	name string // Message.field, as the proto has it
	goes string // the name of the Go struct's field
}

// allFields lists the fields of every message that is reachable from the requests and responses of CRI's services, in the order
// of the proto.
func allFields(t *testing.T) []field {
	t.Helper()
	file := (&cri.VersionRequest{}).ProtoReflect().Descriptor().ParentFile()
	reached := map[protoreflect.FullName]bool{}
	var reach func(protoreflect.MessageDescriptor)
	reach = func(m protoreflect.MessageDescriptor) {
		if reached[m.FullName()] {
			return
		}
		reached[m.FullName()] = true
		for i := range m.Fields().Len() {
			if sub := m.Fields().Get(i).Message(); sub != nil {
				reach(sub)
			}
		}
	}
	for i := range file.Services().Len() {
		methods := file.Services().Get(i).Methods()
		for k := range methods.Len() {
			reach(methods.Get(k).Input())
			reach(methods.Get(k).Output())
		}
	}
	var all []field
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		if !reached[m.FullName()] {
			continue
		}
		names := goNames(t, m)
		for k := range m.Fields().Len() {
			f := m.Fields().Get(k)
			all = append(all, field{name: string(m.Name()) + "." + string(f.Name()), goes: names[string(f.Name())]})
		}
	}
	return all
}

// goNames maps a message's fields to those of its Go struct.
func goNames(t *testing.T, m protoreflect.MessageDescriptor) map[string]string {
	t.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	st := reflect.TypeOf(mt.New().Interface()).Elem()
	for i := range st.NumField() {
		for part := range strings.SplitSeq(st.Field(i).Tag.Get("protobuf"), ",") {
			if name, ok := strings.CutPrefix(part, "name="); ok {
				names[name] = st.Field(i).Name
			}
		}
	}
	return names
}

var (
	// binding are the words by which the proto's comments bind somebody.
	binding = regexp.MustCompile(`(?i)\b(must|should|shall|required|has to be|expected to mount|mutually exclusive|will use different)\b`)
	opening = regexp.MustCompile(`^(service|message|enum)\s+(\w+)`)
	element = regexp.MustCompile(`^(?:rpc\s+|(?:repeated\s+)?(?:map\s*<[^>]*>|[\w.]+)\s+)?(\w+)\s*(?:=\s*\d+|\()`)
	// sentence ends where a sentence or a half of one does. What matters is only that the count does not change by itself.
	sentence = regexp.MustCompile(`[.;:]\s+`)
)

// allRules counts the sentences of the proto's comments that bind somebody, by what the comment is about.
func allRules(t *testing.T) map[string]int {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/cri-api").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg/apis/runtime/v1/api.proto"))
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]int{}
	var scope, comment []string
	count := func(name string) {
		for _, s := range sentence.Split(strings.Join(comment, " "), -1) {
			if binding.MatchString(s) {
				rules[name]++
			}
		}
	}
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "//"); ok {
			comment = append(comment, strings.TrimSpace(text))
			continue
		}
		if m := opening.FindStringSubmatch(line); m != nil {
			scope = append(scope, m[2])
			count(strings.Join(scope, "."))
			if strings.HasSuffix(line, "}") {
				scope = scope[:len(scope)-1]
			}
		} else if m := element.FindStringSubmatch(line); m != nil && len(scope) > 0 {
			count(strings.Join(append(scope[:len(scope):len(scope)], m[1]), "."))
		} else if strings.HasPrefix(line, "}") && len(scope) > 0 {
			scope = scope[:len(scope)-1]
		}
		comment = nil
	}
	if len(rules) < 80 {
		t.Fatalf("only %d rules were found in the proto: its form has changed", len(rules))
	}
	return rules
}
