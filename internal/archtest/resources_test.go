package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// resourcesAreRead are the packages and files that read what a specification says of resources, with the reasons.
var resourcesAreRead = map[string]string{
	"internal/pods/allocated":                           "it says what pods have",
	"internal/pods/defaults":                            "it writes specifications",
	"internal/pods/validation":                          "it judges specifications",
	"internal/pods/qos.go":                              "the class of a pod is that of its creation",
	"internal/apiserver/admission/limitranges.go":       "it writes specifications",
	"internal/apiserver/admission/runtimeclass.go":      "it writes specifications",
	"internal/controllers/binder/volumes.go":            "they are those of claims, not of pods",
	"internal/controllers/volumebinding":                "they are those of claims, not of pods",
	"internal/apiserver/admission/claims.go":            "they are those of claims, not of pods",
	"internal/apiserver/registry/persistentvolumeclaim": "they are those of claims, not of pods",
	"internal/storage/plan":                             "they are those of claims, not of pods",
	"internal/agent/podspec/devices.go":                 "devices are granted one by one, and are given back only with the pod",
}

// TestResources: one package says what a pod has. Whoever reads requests and limits of a specification himself reckons otherwise than the others as soon as a pod
// has something else than it asks for.
func TestResources(t *testing.T) {
	var found []string
	for _, p := range list(t, "./...") {
		pkg := strings.TrimPrefix(p.ImportPath, module)
		for _, file := range append(p.GoFiles, p.CgoFiles...) {
			name := filepath.Join(pkg, file)
			for _, at := range resourcesReadIn(t, filepath.Join(p.Dir, file)) {
				found = append(found, pkg, name)
				if resourcesAreRead[pkg] == "" && resourcesAreRead[name] == "" {
					t.Errorf("%s: what a specification says of resources is read: ask internal/pods/allocated what the pod has", at)
				}
			}
		}
	}
	for name := range resourcesAreRead {
		if !slices.Contains(found, name) {
			t.Errorf("%s reads nothing of resources: it needs no exception", name)
		}
	}
}

// resourcesReadIn finds where a file reads the resources of a container (x.Resources.Requests), or of a pod (x.Spec.Resources, x.Spec.Overhead), or sums them.
func resourcesReadIn(t *testing.T, path string) (at []token.Position) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, imp := range f.Imports {
		if imp.Path.Value == `"k8s.io/component-helpers/resource"` {
			at = append(at, fset.Position(imp.Pos()))
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of := ""
		switch x := sel.X.(type) {
		case *ast.Ident:
			of = x.Name
		case *ast.SelectorExpr:
			of = x.Sel.Name
		}
		switch sel.Sel.Name {
		case "Requests", "Limits":
			ok = of == "Resources"
		case "Resources", "Overhead":
			ok = of == "spec" || of == "Spec"
		default:
			ok = false
		}
		if ok {
			at = append(at, fset.Position(sel.Pos()))
		}
		return true
	})
	return at
}
