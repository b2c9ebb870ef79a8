package manifests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// inventoryVersion is that of the stored form.
const inventoryVersion = 1

// Inventory are the objects of a directory that are in the API, or may be, with the files that they are of. It is kept in a config map, as JSON:
//
//	{"version": 1, "objects": [{"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "n", "name": "web", "file": "web.yaml"}]}
type Inventory map[Key]Entry

// Key tells objects apart: the version of an object's group does not.
type Key struct{ Group, Kind, Namespace, Name string }

// Entry is what is known of an object.
type Entry struct{ Version, File string }

// String is an object's name for people.
func (k Key) String() string {
	s := k.Kind
	if k.Group != "" {
		s += "." + k.Group
	}
	if k.Namespace != "" {
		return s + " " + k.Namespace + "/" + k.Name
	}
	return s + " " + k.Name
}

func (k Key) kind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Kind}
}

// keyOf is an object's key. The namespace default is left out, as it may be in a file: both are the same object.
func keyOf(o *unstructured.Unstructured) Key {
	gvk, namespace := o.GroupVersionKind(), o.GetNamespace()
	if namespace == metav1.NamespaceDefault {
		namespace = ""
	}
	return Key{gvk.Group, gvk.Kind, namespace, o.GetName()}
}

type stored struct {
	Version int            `json:"version"`
	Objects []storedObject `json:"objects"`
}

type storedObject struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	File      string `json:"file"`
}

// Encode writes an inventory. The same objects give the same bytes.
func (v Inventory) Encode() (string, error) {
	s := stored{Version: inventoryVersion, Objects: []storedObject{}}
	for k, e := range v {
		s.Objects = append(s.Objects, storedObject{k.Group, e.Version, k.Kind, k.Namespace, k.Name, e.File})
	}
	slices.SortFunc(s.Objects, func(a, b storedObject) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	raw, err := json.Marshal(s)
	return string(raw), err
}

// DecodeInventory reads an inventory.
func DecodeInventory(raw string) (Inventory, error) {
	v := Inventory{}
	if raw == "" {
		return v, nil
	}
	var s stored
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return nil, err
	}
	if s.Version != inventoryVersion {
		return nil, fmt.Errorf("it is of version %d; this Monopod knows version %d", s.Version, inventoryVersion)
	}
	for _, o := range s.Objects {
		v[Key{o.Group, o.Kind, o.Namespace, o.Name}] = Entry{o.Version, o.File}
	}
	return v, nil
}
