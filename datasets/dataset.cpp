#include "datasets/dataset.h"
