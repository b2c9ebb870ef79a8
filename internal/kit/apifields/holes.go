package apifields

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Holes tells what is wrong with tables that are read together, from the given types down through all that one of them honours: structs without
// verdicts, fields without one, and verdicts of what there is not. Structs of other packages than those of the API's groups have none, nor have the
// metadata of objects.
func Holes(tables []Table, roots ...reflect.Type) (holes []string) {
	h := &holesIn{tables: tables, visited: map[reflect.Type]bool{}}
	for _, root := range roots {
		h.visit(root)
	}
	for _, t := range tables {
		for typ := range t {
			if !h.visited[typ] {
				h.found = append(h.found, fmt.Sprintf("the verdicts of %s are never used", typ))
			}
		}
	}
	slices.Sort(h.found)
	return slices.Compact(h.found)
}

type holesIn struct {
	tables  []Table
	visited map[reflect.Type]bool
	found   []string
}

func (h *holesIn) visit(typ reflect.Type) {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || !strings.HasPrefix(typ.PkgPath(), "k8s.io/api/") || h.visited[typ] {
		return
	}
	h.visited[typ] = true
	for _, t := range h.tables {
		fields, ok := t[typ]
		if !ok {
			h.found = append(h.found, fmt.Sprintf("%s has no verdicts", typ))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if _, ok := typ.FieldByName(name); !ok {
				h.found = append(h.found, fmt.Sprintf("%s has no field %s", typ, name))
			}
		}
	}
	for i := range typ.NumField() {
		f, below := typ.Field(i), false
		if strings.HasPrefix(f.Type.PkgPath(), "k8s.io/apimachinery/pkg/apis/meta/") && f.Anonymous {
			continue
		}
		for _, t := range h.tables {
			verdict, ok := t[typ][f.Name]
			if !ok {
				h.found = append(h.found, fmt.Sprintf("%s.%s has no verdict", typ, f.Name))
			}
			below = below || ok && verdict.Kind == Does
		}
		if below {
			h.visit(f.Type)
		}
	}
}
