package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// maxFile is the largest file that is read, in bytes: that of a request to the API server.
const maxFile = 3 << 20

// Document is an object of a file.
type Document struct {
	// File is its name in the directory.
	File   string
	Object *unstructured.Unstructured
}

// Reading is what a directory holds.
type Reading struct {
	Documents []Document
	// Faults are the files that cannot be read, with the reason. None of their objects are among the documents.
	Faults map[string]error
}

// Read reads the files of a directory that end in .yaml, .yml or .json, by their names, and not those whose names begin with a dot. An error says that
// the directory itself cannot be read.
func Read(dir string) (Reading, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Reading{}, err
	}
	r := Reading{Faults: map[string]error{}}
	whose := map[Key]string{}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			continue
		}
		raw, err := readFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went meanwhile
		}
		var objects []*unstructured.Unstructured
		if err == nil {
			objects, err = Parse(raw)
		}
		if err == nil {
			err = unique(whose, name, objects)
		}
		if err != nil {
			r.Faults[name] = err
			continue
		}
		for _, o := range objects {
			r.Documents = append(r.Documents, Document{File: name, Object: o})
		}
	}
	return r, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // a pipe would have no end
		return nil, errors.New("it is no regular file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it has %d bytes; at most %d are read: divide it", info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

// unique notes whose a file's objects are. An error says that one of them is another file's already, or is there twice; then none are noted.
func unique(whose map[Key]string, file string, objects []*unstructured.Unstructured) error {
	own := map[Key]struct{}{}
	for _, o := range objects {
		k := keyOf(o)
		if other, ok := whose[k]; ok {
			return fmt.Errorf("%s is in %s already: leave it in one of them", k, other)
		}
		if _, ok := own[k]; ok {
			return fmt.Errorf("%s is in it twice", k)
		}
		own[k] = struct{}{}
	}
	for k := range own {
		whose[k] = file
	}
	return nil
}

// Parse reads the objects of a file: documents of YAML or JSON, one after another. The items of a List are objects of the file.
func Parse(raw []byte) (all []*unstructured.Unstructured, err error) {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		var content map[string]any
		if err == nil {
			err = yaml.UnmarshalStrict(document, &content)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(content) == 0 {
			continue // comments
		}
		objects, err := objectsOf(&unstructured.Unstructured{Object: content})
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		all = append(all, objects...)
	}
}

func objectsOf(o *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if !o.IsList() {
		return []*unstructured.Unstructured{o}, check(o)
	}
	list, err := o.ToList()
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for i := range list.Items {
		if err := check(&list.Items[i]); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// check says what an object lacks to be applied.
func check(o *unstructured.Unstructured) error {
	switch {
	case o.GetAPIVersion() == "":
		return errors.New("apiVersion is missing")
	case o.GetKind() == "":
		return errors.New("kind is missing")
	case o.GetName() == "":
		return fmt.Errorf("%s: metadata.name is missing; generateName does not do, because the object is to be found again", o.GetKind())
	}
	return nil
}
