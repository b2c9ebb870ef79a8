package resource

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Unknown stands in a table for a value that the object does not tell, None for one that it has not got, Unset for a field that says nothing.
const (
	Unknown = "<unknown>"
	None    = "<none>"
	Unset   = "<unset>"
)

// Column is a column of the table that `kubectl get` shows: the server side of content negotiation for "as=Table;g=meta.k8s.io;v=v1". The columns of a
// resource, their order and their words are those of a Kubernetes API server, because people and scripts read them.
//
// Name, Age and Created At are the same for every resource: a column of that name without Doc and Value is complete.
type Column[T Object] struct {
	Name string
	// Doc says what is in it. Type is "string" where it is empty.
	Doc, Type string
	// Wide: only `kubectl get -o wide` shows it; the server sends all columns and the client chooses.
	Wide bool
	// Value is the cell of an object, nil where the resource has a Row.
	Value func(obj T) any
}

// RowFunc makes the cells of one object, one for each column, and the row's conditions (usually none). now is the time from which ages are counted: one
// for a whole list.
type RowFunc[T Object] func(obj T, now time.Time) ([]any, []metav1.TableRowCondition)

const (
	nameColumn = "Name"
	ageColumn  = "Age"
	// madeColumn is for objects whose age says nothing.
	madeColumn = "Created At"
)

// table is the rest.TableConvertor of a resource.
type table[T Object] struct {
	columns []Column[T]
	row     RowFunc[T]
	rows    func(list []T) RowFunc[T]
}

// NewTable makes the table of columns and, where they have work in common, the function that makes a row of them.
func NewTable[T Object](columns []Column[T], row RowFunc[T]) rest.TableConvertor {
	return table[T]{columns: columns, row: row}
}

// definitions are the columns as the API has them.
func (t table[T]) definitions() []metav1.TableColumnDefinition {
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	all := make([]metav1.TableColumnDefinition, 0, len(t.columns))
	for _, c := range t.columns {
		d := metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Description: c.Doc}
		switch {
		case c.Name == nameColumn && c.Doc == "":
			// The format tells clients that the column holds the object's name.
			d.Format, d.Description = "name", meta["name"]
		case c.Name == ageColumn && c.Doc == "":
			d.Description = meta["creationTimestamp"]
		case c.Name == madeColumn && c.Doc == "":
			d.Type, d.Description = "date", meta["creationTimestamp"]
		}
		if d.Type == "" {
			d.Type = "string"
		}
		if c.Wide {
			d.Priority = 1
		}
		all = append(all, d)
	}
	return all
}

// cells are those of one object.
func (t table[T]) cells(obj T, now time.Time) ([]any, []metav1.TableRowCondition) {
	if t.row != nil {
		return t.row(obj, now)
	}
	all := make([]any, 0, len(t.columns))
	for _, c := range t.columns {
		switch {
		case c.Value != nil:
			all = append(all, c.Value(obj))
		case c.Name == nameColumn:
			all = append(all, obj.GetName())
		case c.Name == ageColumn:
			all = append(all, Age(obj.GetCreationTimestamp().Time, now))
		case c.Name == madeColumn:
			all = append(all, obj.GetCreationTimestamp().UTC().Format(time.RFC3339))
		}
	}
	return all, nil
}

// ConvertToTable implements rest.TableConvertor for a single object and for a list.
func (t table[T]) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	var objects []T
	add := func(obj runtime.Object) error {
		typed, ok := obj.(T)
		if !ok {
			return notConvertible(ctx, obj)
		}
		objects = append(objects, typed)
		return nil
	}
	var err error
	listed := meta.IsListType(object)
	if listed {
		err = meta.EachListItem(object, add)
	} else {
		err = add(object)
	}
	if err != nil {
		return nil, err
	}
	if t.rows != nil {
		t.row = t.rows(nil)
		if listed {
			t.row = t.rows(objects)
		}
	}
	var result metav1.Table
	now := time.Now()
	for _, obj := range objects {
		cells, conditions := t.cells(obj, now)
		result.Rows = append(result.Rows, metav1.TableRow{Cells: cells, Conditions: conditions, Object: runtime.RawExtension{Object: obj}})
	}
	if list, err := meta.ListAccessor(object); err == nil {
		result.ResourceVersion = list.GetResourceVersion()
		result.Continue = list.GetContinue()
		result.RemainingItemCount = list.GetRemainingItemCount()
	} else if m, err := meta.CommonAccessor(object); err == nil {
		result.ResourceVersion = m.GetResourceVersion()
	}
	if opts, ok := tableOptions.(*metav1.TableOptions); !ok || !opts.NoHeaders {
		result.ColumnDefinitions = t.definitions()
	}
	return &result, nil
}

// notAcceptable is the API's answer (406) to a table of something that has none.
type notAcceptable struct{ message string }

func (e notAcceptable) Error() string { return e.message }

func (e notAcceptable) Status() metav1.Status {
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: e.message,
	}
}

func notConvertible(ctx context.Context, obj runtime.Object) error {
	resource := "this resource"
	if info, ok := genericrequest.RequestInfoFrom(ctx); ok {
		resource = "resource " + info.Resource
	}
	return notAcceptable{fmt.Sprintf("%s: an object of type %T cannot be shown as a table", resource, obj)}
}

// Age is the time since t in kubectl's short form ("5s", "3d2h").
func Age(t, now time.Time) string {
	if t.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

// OrNone is s, or what stands for a value that there is not.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

// OrUnset is what a field says, or what stands for one that says nothing.
func OrUnset[S ~string](s *S) string {
	if s == nil {
		return Unset
	}
	return string(*s)
}

// Reference names an object as kubectl does: "pod/p", "statefulset.apps/web".
func Reference(group, kind, name string) string {
	kind = strings.ToLower(kind)
	if group != "" {
		kind += "." + group
	}
	return kind + "/" + name
}

// Few joins the first of a list as tables do: "a,b,c + 2 more...".
func Few(list []string, most int) string {
	if len(list) == 0 {
		return None
	}
	if len(list) > most {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:most], ","), len(list)-most)
	}
	return strings.Join(list, ",")
}
