package review

import (
	"context"
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// The authorizer is asked with the selectors of a review, in either form. What cannot be read of them makes the question a wider one.
func TestSelectors(t *testing.T) {
	fieldsBy := func(operator metav1.FieldSelectorOperator, values ...string) *authorizationv1.FieldSelectorAttributes {
		return &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "spec.nodeName", Operator: operator, Values: values}}}
	}
	labelsBy := func(operator metav1.LabelSelectorOperator, values ...string) *authorizationv1.LabelSelectorAttributes {
		return &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "app", Operator: operator, Values: values}}}
	}
	for name, tc := range map[string]struct {
		fields         *authorizationv1.FieldSelectorAttributes
		labels         *authorizationv1.LabelSelectorAttributes
		invalid        string // the errors; empty: there are none
		asked, ignored string
	}{
		"none":                        {asked: "[] []"},
		"raw":                         {&authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=n"}, &authorizationv1.LabelSelectorAttributes{RawSelector: "app in (a,b)"}, "", "[spec.nodeName=n] [app in (a,b)]", ""},
		"requirements":                {fieldsBy("In", "n"), labelsBy("NotIn", "a"), "", "[spec.nodeName=n] [app notin (a)]", ""},
		"other operators":             {fieldsBy("NotIn", "n"), labelsBy("Exists"), "", "[spec.nodeName!=n] [app]", ""},
		"raw ones that are none":      {&authorizationv1.FieldSelectorAttributes{RawSelector: "a b"}, &authorizationv1.LabelSelectorAttributes{RawSelector: "((("}, "", "[] []", "spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error"},
		"a newer operator":            {fieldsBy("Like", "n"), nil, "", "[] []", "spec.resourceAttributes.fieldSelector ignored due to parse error"},
		"a field with several values": {fieldsBy("In", "n", "m"), nil, "", "[] []", "spec.resourceAttributes.fieldSelector ignored due to parse error"},
		"one of two": {nil, &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}, {Key: "b", Operator: "Like"}}}, "",
			"[] [a]", "spec.resourceAttributes.labelSelector partially ignored due to parse error"},
		"neither form":             {&authorizationv1.FieldSelectorAttributes{}, nil, "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required", "", ""},
		"both forms":               {nil, &authorizationv1.LabelSelectorAttributes{RawSelector: "a", Requirements: labelsBy("Exists").Requirements}, `spec.resourceAttributes.labelSelector.rawSelector: Invalid value: "a": may not specified at the same time as requirements`, "", ""},
		"values of no use":         {nil, labelsBy("Exists", "a"), `spec.resourceAttributes.labelSelector.requirements[0].values: Forbidden: may not be specified when ` + "`operator`" + ` is 'Exists' or 'DoesNotExist'`, "", ""},
		"a value that is required": {fieldsBy("In"), nil, `spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when ` + "`operator`" + ` is 'In' or 'NotIn'`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			attributes := &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", FieldSelector: tc.fields, LabelSelector: tc.labels}
			errs := validateAttributes(attributes, nil)
			if tc.invalid != "" {
				if len(errs) != 1 || errs[0].Error() != tc.invalid {
					t.Errorf("errors %v, want %q", errs, tc.invalid)
				}
				return
			}
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			asked := ""
			status := decide(t.Context(), authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				byFields, _ := a.GetFieldSelector()
				byLabels, _ := a.GetLabelSelector()
				var texts []string
				for _, r := range byFields {
					texts = append(texts, r.Field+string(r.Operator)+r.Value)
				}
				asked = fmt.Sprintf("%v [%v]", texts, byLabels)
				return authorizer.DecisionAllow, "", nil
			}), &user.DefaultInfo{Name: "joe"}, attributes, nil)
			if asked != tc.asked || status.EvaluationError != tc.ignored || !status.Allowed {
				t.Errorf("asked %q, want %q; %+v", asked, tc.asked, status)
			}
		})
	}
}
