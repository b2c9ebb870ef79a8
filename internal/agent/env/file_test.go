package env

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestFileValue(t *testing.T) {
	for _, c := range []struct{ content, key, want, err string }{
		{"A='1'\nB='2'\n", "B", "2", ""},
		{"A='1'", "A", "1", ""},
		{"\n \t\n# B='no'\n\t B='  2 '   # a comment\n", "B", "  2 ", ""},
		{"A='x=y#z $B ${C} \\n \"q\"'", "A", "x=y#z $B ${C} \\n \"q\"", ""},
		{"A='one\n two \n\n# three'\nB='2'", "A", "one\n two \n\n# three", ""},
		{"A='one\ntwo'\nB='2'", "B", "2", ""},
		{"A='1'\r\nB='2\r\n3'\r\n", "B", "2\n3", ""},
		{"A='1'\nA='2'\n", "A", "1", ""},
		{"A='1'\nnonsense\n", "A", "1", ""},
		{"", "A", "", ""},
		{"A='1'\n", "B", "", ""},
		{"A=''\n", "A", "", ""},
		{"A= '1'\nB='2'\n", "A", "", ""},
		{"A= '1'\nB='2'\n", "B", "2", ""},
		{"nonsense\nA='1'\n", "A", "", "line 1: missing '='"},
		{"\n='1'\n", "A", "", "line 2: empty variable name"},
		{"  =\n", "A", "", "line 1: empty variable name"},
		{"A ='1'\n", "A", "", "line 1: whitespace before '='"},
		{"A=1\n", "A", "", "line 1: value must be enclosed in single quotes"},
		{"A=\n", "A", "", "line 1: value must be enclosed in single quotes"},
		{"A=\"1\"\n", "A", "", "line 1: value must be enclosed in single quotes"},
		{"A='1'x\n", "A", "", "line 1: unexpected content after closing quote"},
		{"A='1''2'\n", "A", "", "line 1: unexpected content after closing quote"},
		{"A='1\n2' 3\n", "A", "", "line 2: unexpected content after closing quote"},
		{"# c\nA='1\n2\n", "A", "", "starting at line 2: unclosed single quote"},
	} {
		got, found, err := FileValue(c.content, c.key)
		if got != c.want || found != (c.want != "") || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s of %q: %q, %v, %v; want %q, %q", c.key, c.content, got, found, err, c.want, c.err)
		}
	}
}

// What a container has written is outside data.
func FuzzFileValue(f *testing.F) {
	for _, seed := range []string{"", "A='1'", "A='1\n2'", "A= x", "='", "#", "A='\r\n'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		if value, found, err := FileValue(content, "A"); (err != nil || !found) && value != "" || strings.Contains(value, "'") {
			t.Errorf("%q: %q, %v, %v", content, value, found, err)
		}
		if strings.ContainsAny(content, "'\r") || content == "" {
			return
		}
		if value, found, err := FileValue("A='"+content+"'", "A"); value != content || !found || err != nil {
			t.Errorf("%q quoted is %q, %v, %v", content, value, found, err)
		}
	})
}

func TestFileKeyRef(t *testing.T) {
	files := func(volume, path string) ([]byte, error) {
		switch volume + "/" + path {
		case "v/good":
			return []byte("A='1'\nEMPTY=''\n"), nil
		case "v/bad":
			return []byte("secret\n"), nil
		case "v/none":
			return nil, fs.ErrNotExist
		}
		return nil, errors.New("no volume")
	}
	yes := true
	for _, c := range []struct {
		name, volume, path, key string
		optional                *bool
		files                   func(volume, path string) ([]byte, error)
		want, err               string
	}{
		{name: "a key", volume: "v", path: "good", key: "A", files: files, want: "X=1"},
		{name: "no such key", volume: "v", path: "good", key: "B", files: files, err: `environment variable key "B" not found in file "good"`},
		{name: "no value", volume: "v", path: "good", key: "EMPTY", files: files, err: `environment variable key "EMPTY" not found in file "good"`},
		{name: "an optional key", volume: "v", path: "good", key: "B", optional: &yes, files: files},
		{name: "no such file", volume: "v", path: "none", key: "A", files: files, err: "file does not exist"},
		{name: "an optional file", volume: "v", path: "none", key: "A", optional: &yes, files: files},
		{name: "a file of another form", volume: "v", path: "bad", key: "A", optional: &yes, files: files, err: "couldn't parse env file"},
		{name: "no such volume", volume: "w", path: "good", key: "A", optional: &yes, files: files, err: "no volume"},
		{name: "nobody reads files", volume: "v", path: "good", key: "A", err: "not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: c.volume, Path: c.path, Key: c.key, Optional: c.optional}}
			vars, err := Resolve(t.Context(), Input{Pod: &v1.Pod{}, Container: &v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "X", ValueFrom: from}}}, Objects: someObjects{}, Files: c.files})
			if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secret")) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			got := ""
			for _, v := range vars {
				got += v.Name + "=" + v.Value
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
