package printers

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// unknown stands for a value that the object does not tell, none for one that it has not got.
const (
	unknown = "<unknown>"
	none    = "<none>"
)

// table is the rest.TableConvertor of objects of type T (an API struct, not a pointer).
type table[T any] struct {
	columns []metav1.TableColumnDefinition
	// row returns the cells of one object, one for each column, and the row's conditions (usually none). now is the
	// time from which ages are counted: one for a whole list.
	row func(obj *T, now time.Time) ([]any, []metav1.TableRowCondition)
}

var _ rest.TableConvertor = table[struct{}]{}

// ConvertToTable implements rest.TableConvertor for a single object and for a list.
func (t table[T]) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	var result metav1.Table
	now := time.Now()
	add := func(obj runtime.Object) error {
		typed, ok := any(obj).(*T)
		if !ok {
			return notConvertible(ctx, obj)
		}
		cells, conditions := t.row(typed, now)
		result.Rows = append(result.Rows, metav1.TableRow{
			Cells:      cells,
			Conditions: conditions,
			Object:     runtime.RawExtension{Object: obj},
		})
		return nil
	}
	var err error
	if meta.IsListType(object) {
		err = meta.EachListItem(object, add)
	} else {
		err = add(object)
	}
	if err != nil {
		return nil, err
	}
	if list, err := meta.ListAccessor(object); err == nil {
		result.ResourceVersion = list.GetResourceVersion()
		result.Continue = list.GetContinue()
		result.RemainingItemCount = list.GetRemainingItemCount()
	} else if m, err := meta.CommonAccessor(object); err == nil {
		result.ResourceVersion = m.GetResourceVersion()
	}
	if opts, ok := tableOptions.(*metav1.TableOptions); !ok || !opts.NoHeaders {
		result.ColumnDefinitions = t.columns
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

// column is a column that is always shown.
func column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

// wideColumn is a column for `kubectl get -o wide`.
func wideColumn(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description, Priority: 1}
}

// nameColumn is the first column of every table. Its format tells clients that it holds the object's name.
func nameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
	}
}

func ageColumn() metav1.TableColumnDefinition {
	return column("Age", "string", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
}

// age is the time since t in kubectl's short form ("5s", "3d2h").
func age(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t))
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}
