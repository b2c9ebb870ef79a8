// Package controllerrevision serves the resource controllerrevisions of apps/v1: what controllers of workloads keep of earlier templates.
package controllerrevision

import (
	"encoding/json"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource controllerrevisions.
func Resource() resource.Of[*appsv1.ControllerRevision, *appsv1.ControllerRevisionList] {
	doc := appsv1.ControllerRevision{}.SwaggerDoc()
	return resource.Of[*appsv1.ControllerRevision, *appsv1.ControllerRevisionList]{
		Group:      appsv1.GroupName,
		Plural:     "controllerrevisions",
		Namespaced: true,
		ReadBy:     resource.Viewer,
		Honours:    apifields.Table{reflect.TypeFor[appsv1.ControllerRevision](): apifields.All("Data", "Revision")},
		Create:     validate,
		Update: func(r, old *appsv1.ControllerRevision) field.ErrorList {
			errs := validate(r)
			if !apiequality.Semantic.DeepEqual(r.Data.Raw, old.Data.Raw) {
				errs = append(errs, field.Invalid(field.NewPath("data"), "", apivalidation.FieldImmutableErrorMsg))
			}
			return errs
		},
		Columns: []resource.Column[*appsv1.ControllerRevision]{
			{Name: "Name"},
			{Name: "Controller", Doc: "The controller that made the revision", Value: controller},
			{Name: "Revision", Doc: doc["revision"], Type: "integer", Value: func(r *appsv1.ControllerRevision) any { return r.Revision }},
			{Name: "Age"},
		},
	}
}

func validate(r *appsv1.ControllerRevision) field.ErrorList {
	errs := apivalidation.ValidateNonnegativeField(r.Revision, field.NewPath("revision"))
	var data map[string]any
	if at := field.NewPath("data"); len(r.Data.Raw) == 0 && r.Data.Object == nil {
		errs = append(errs, field.Required(at, "data is mandatory"))
	} else if len(r.Data.Raw) > 0 && json.Unmarshal(r.Data.Raw, &data) != nil {
		errs = append(errs, field.Invalid(at, "<value omitted>", "must be a JSON object"))
	}
	return errs
}

// controller is written as kubectl names an object of any group: "statefulset.apps/web".
func controller(r *appsv1.ControllerRevision) any {
	owner := metav1.GetControllerOf(r)
	if owner == nil {
		return resource.None
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return resource.None
	}
	return resource.Reference(gv.Group, owner.Kind, owner.Name)
}
