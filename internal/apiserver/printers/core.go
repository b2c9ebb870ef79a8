package printers

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Namespaces returns the table of corev1.Namespace: NAME STATUS AGE.
func Namespaces() rest.TableConvertor {
	return table[corev1.Namespace]{
		columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Status", "string", "The status of the namespace"),
			ageColumn(),
		},
		row: func(ns *corev1.Namespace, now time.Time) ([]any, []metav1.TableRowCondition) {
			return []any{ns.Name, string(ns.Status.Phase), age(ns.CreationTimestamp.Time, now)}, nil
		},
	}
}

// ConfigMaps returns the table of corev1.ConfigMap: NAME DATA AGE.
func ConfigMaps() rest.TableConvertor {
	return table[corev1.ConfigMap]{
		columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Data", "string", "The number of keys in data and binaryData"),
			ageColumn(),
		},
		row: func(cm *corev1.ConfigMap, now time.Time) ([]any, []metav1.TableRowCondition) {
			return []any{cm.Name, int64(len(cm.Data) + len(cm.BinaryData)), age(cm.CreationTimestamp.Time, now)}, nil
		},
	}
}

// Secrets returns the table of corev1.Secret: NAME TYPE DATA AGE. It shows no secret data.
func Secrets() rest.TableConvertor {
	return table[corev1.Secret]{
		columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Type", "string", corev1.Secret{}.SwaggerDoc()["type"]),
			column("Data", "string", "The number of keys in data"),
			ageColumn(),
		},
		row: func(s *corev1.Secret, now time.Time) ([]any, []metav1.TableRowCondition) {
			return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s.CreationTimestamp.Time, now)}, nil
		},
	}
}

// ServiceAccounts returns the table of corev1.ServiceAccount: NAME SECRETS AGE.
func ServiceAccounts() rest.TableConvertor {
	return table[corev1.ServiceAccount]{
		columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Secrets", "string", corev1.ServiceAccount{}.SwaggerDoc()["secrets"]),
			ageColumn(),
		},
		row: func(sa *corev1.ServiceAccount, now time.Time) ([]any, []metav1.TableRowCondition) {
			return []any{sa.Name, int64(len(sa.Secrets)), age(sa.CreationTimestamp.Time, now)}, nil
		},
	}
}

// Leases returns the table of coordinationv1.Lease: NAME HOLDER AGE.
func Leases() rest.TableConvertor {
	return table[coordinationv1.Lease]{
		columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Holder", "string", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"]),
			ageColumn(),
		},
		row: func(l *coordinationv1.Lease, now time.Time) ([]any, []metav1.TableRowCondition) {
			var holder string
			if l.Spec.HolderIdentity != nil {
				holder = *l.Spec.HolderIdentity
			}
			return []any{l.Name, holder, age(l.CreationTimestamp.Time, now)}, nil
		},
	}
}
