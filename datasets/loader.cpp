#include "datasets/loader.h"
